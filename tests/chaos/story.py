"""Events that one client got of its task, over any number of connections, and events that are errors."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

START = "0-0"
"""The position of a client that has only the beginning of the task.

If its view was stored later, the stream does not hold that position, and the whole task comes first, as
documented.
"""

Json = dict[str, Any]
"""A2A 1.0 as JSON."""

TERMINAL = frozenset(f"TASK_STATE_{state}" for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))


@dataclass
class Story:
    """`texts` are those of each artifact (A2A 1.0 §4.2.2), `states` those of the task, without repetitions.

    `journal` are lines with the seconds since the load began. `problems` are events that no client may get.
    `may_be_shown_anew`: whether the whole task may come between the updates, since a failover may lose the
    event that was read last. It may be as it was before that event, and its updates come again.
    """

    clock: Callable[[], float] = time.monotonic
    may_be_shown_anew: bool = False
    task_id: str = ""
    last_id: str = ""
    state: str = ""
    states: list[str] = field(default_factory=list[str])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    complete: list[str] = field(default_factory=list[str])
    messages: set[str] = field(default_factory=set[str])
    questions: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    journal: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    _ids: set[str] = field(default_factory=set[str])

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    def note(self, line: str) -> None:
        """Write a line in the journal."""
        self.journal.append((self.clock(), line))

    def take(self, event: Json, event_id: str) -> None:
        """Take the next event in."""
        if self.last_id and "task" in event:
            self._begin_anew()
        if event_id in self._ids and event_id != START:
            self.problems.append(f"the event {event_id} came twice")
        if self.is_over:
            self.problems.append(f"an event came after the end: {str(event)[:200]}")
        if task := event.get("task"):
            self._take_task(task)
        elif update := event.get("statusUpdate"):
            self._take_status(update["status"])
        elif update := event.get("artifactUpdate"):
            self._take_artifact(update)
        if event_id:
            # Only now: a connection that breaks earlier does not move the position.
            self._ids.add(event_id)
            self.last_id = event_id

    def _begin_anew(self) -> None:
        if self.may_be_shown_anew:
            for seen in (self._ids, self.states, self.complete):
                seen.clear()
        elif not self.last_id.startswith(START):
            self.problems.append("the whole task came where only news were asked for")

    def _take_task(self, task: Json) -> None:
        self.task_id = task["id"]
        self.note(f"task {task['id']}")
        self.texts = {artifact["artifactId"]: text_of(artifact) for artifact in task.get("artifacts", [])}
        self.messages |= {message["messageId"] for message in task.get("history", [])}
        self._take_status(task["status"])

    def _take_status(self, status: Json) -> None:
        message = status.get("message", {})
        words = " ".join(part["text"] for part in message.get("parts", []) if "text" in part)
        self.note(f"{status['state']} {words[:80]}".rstrip())
        self.state = status["state"]
        if self.states[-1:] != [self.state]:
            self.states.append(self.state)
        if message:
            self.messages.add(message["messageId"])
        if self.state in {"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"}:
            self.questions = questions_of(message)

    def _take_artifact(self, update: Json) -> None:
        name = update["artifact"]["artifactId"]
        before = self.texts.get(name, "") if update.get("append") else ""
        self.texts[name] = before + text_of(update["artifact"])
        if not update.get("append"):
            self.note(f"artifact {name} begins")
        if update.get("lastChunk"):
            self.complete.append(name)
            self.note(f"artifact {name} is complete")


def text_of(artifact: Json) -> str:
    """Return the texts of an artifact."""
    return "".join(part.get("text", "") for part in artifact.get("parts", []))


def questions_of(message: Json) -> list[str]:
    """Return the ids of a status's questions."""
    return [
        question["id"]
        for part in message.get("parts", [])
        if "data" in part
        for question in part["data"].get("questions", [])
    ]
