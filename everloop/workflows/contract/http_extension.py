"""The HTTP extension beside A2A: the addresses that a gateway serves and a client calls.

The client loads this module, and no other one of the contract.
"""

import re
from enum import Enum
from urllib.parse import quote

EVENTS_EXTENSION = "https://everloop.dev/extensions/events/v1"
"""A client that activates it receives every event of a task, as metadata of status updates under this URI."""

HTTP_EXTENSION = "https://everloop.dev/extensions/http/v1"
"""JSON over HTTP beside A2A; the card has its path as `base`."""

HTTP_BASE = "/everloop/v1"


class Address(Enum):
    """A method and a path below the base; names in braces stand for ids."""

    LIST_APPROVALS = ("GET", "/approvals")
    ANSWER_APPROVAL = ("POST", "/approvals/{task}/{question}")
    LIST_QUESTIONS = ("GET", "/questions")
    LIST_EVENTS = ("GET", "/tasks/{id}/events")
    SHOW_TRANSCRIPT = ("GET", "/tasks/{id}/transcript")
    SHOW_USAGE = ("GET", "/tasks/{id}/usage")
    LIST_CHILDREN = ("GET", "/tasks/{id}/children")
    FORK_TASK = ("POST", "/tasks/{id}/fork")
    CHANGE_TASK = ("PATCH", "/tasks/{id}")
    DELETE_TASK = ("DELETE", "/tasks/{id}")
    DELETE_ARTIFACT = ("DELETE", "/artifacts/{context}/{id}")
    LIST_ARTIFACTS = ("GET", "/artifacts")
    DELETE_OWNER = ("DELETE", "/owner")
    SHOW_DELETION = ("GET", "/deletions/{id}")
    LIST_CONTEXTS = ("GET", "/contexts")
    LIST_MESSAGES = ("GET", "/contexts/{id}/messages")
    SHOW_CONTEXT = ("GET", "/contexts/{id}")
    CHANGE_CONTEXT = ("PATCH", "/contexts/{id}")
    DELETE_CONTEXT = ("DELETE", "/contexts/{id}")
    LIST_SCHEDULES = ("GET", "/schedules")
    CREATE_SCHEDULE = ("POST", "/schedules")
    PAUSE_SCHEDULE = ("POST", "/schedules/{id}:pause")
    RESUME_SCHEDULE = ("POST", "/schedules/{id}:resume")
    RUN_SCHEDULE = ("POST", "/schedules/{id}:run")
    SHOW_SCHEDULE = ("GET", "/schedules/{id}")
    CHANGE_SCHEDULE = ("PATCH", "/schedules/{id}")
    DELETE_SCHEDULE = ("DELETE", "/schedules/{id}")
    LIST_OPERATOR_TASKS = ("GET", "/operator/tasks")
    SHOW_OPERATOR_TASK = ("GET", "/operator/tasks/{id}")
    RESUME_TASK = ("POST", "/operator/tasks/{id}/resume")
    SKIP_CALL = ("POST", "/operator/tasks/{id}/skip")
    RESET_TASK = ("POST", "/operator/tasks/{id}/reset")
    CANCEL_TASK = ("POST", "/operator/tasks/{id}/cancel")
    APPROVE_CALL = ("POST", "/operator/tasks/{id}/approve")
    SHOW_SYSTEM = ("GET", "/operator/system")

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return self.value[0]

    @property
    def path(self) -> str:
        """The path with its names."""
        return self.value[1]

    def path_of(self, *ids: str) -> str:
        """Return the path with ids in place of the names, each as one segment."""
        left = iter(ids)
        return re.sub(r"\{\w+\}", lambda _: quote(next(left), safe=""), self.path)
