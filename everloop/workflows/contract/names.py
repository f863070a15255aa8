"""Names: ids, queues, search attributes."""

import hashlib
import re
import uuid
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from temporalio.common import Priority, SearchAttributeKey

from everloop.workflows.contract.messages import ToolCall

DEFAULT_TASK_QUEUE = "everloop"

ANONYMOUS = "anonymous"
"""The owner of tasks and artifacts whose client did not authenticate."""

WORKER_QUEUES = ("workflows", "model", "tools", "push", "narrator")
"""Names that workers use for the task queues of an Everloop. A worker can serve a single one."""

WORKFLOWS_QUEUE, MODEL_QUEUE, TOOLS_QUEUE, PUSH_QUEUE, NARRATOR_QUEUE = WORKER_QUEUES

WORKFLOW_TYPE = "AgentTask"

PUSH_WORKFLOW_TYPE = "PushDelivery"

PUSH_NEWS = "news"
"""The signal to a `PushDelivery` after a new status of its task."""

SUB_AGENT_ASKS = "zz_internal_sub_agent_asks"
"""The signal with the questions of a sub-agent, from its task to the parent task."""

PEOPLE_ANSWER = "zz_internal_people_answer"
"""The signal with an answer, down to the task of the sub-agent that asked. The Temporal UI lists signals
sorted: these come behind those of operators."""

AGENT_ID = SearchAttributeKey.for_keyword("AgentId")
CONTEXT_ID = SearchAttributeKey.for_keyword("ContextId")
OWNER = SearchAttributeKey.for_keyword("Owner")
TASK_STATE = SearchAttributeKey.for_keyword("TaskState")
TASK_VERSION = SearchAttributeKey.for_int("TaskVersion")
"""Version of the status in `TaskState`, or of an earlier one; the statuses of a task are numbered."""

PARKED = "everloop_parked"
"""The function of a worker by which a task reports that it waits for people."""

SEARCH_ATTRIBUTES = (AGENT_ID, CONTEXT_ID, OWNER, TASK_STATE, TASK_VERSION)

MAX_PLAIN_CONFIG_ID_BYTES = 64
"""Longest id of a push config that is used unchanged in the id of its workflow."""

_MARK = "\x1f"

AGENT_ID_RULE = "1 to 64 letters, digits, '-' and '_', the first a letter or digit"
"""Syntax of agent ids, for messages."""

_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_NUMBER_IN_REPLY = re.compile(r"c\d+$")

_NAMESPACE = uuid.UUID("6b6f2b8e-6f0e-5a54-9a3e-3f1f4a3b7c11")


def derive_task_id(owner: str, agent_id: str, message_id: str, content: bytes) -> str:
    """Return the task id, which is also the workflow id, of a message that starts a task.

    The same message from the same owner gives the same id, so that a retried SendMessage finds its
    task. It begins with the id of the agent, so that a list of workflows is readable as one of work.
    """
    digest = hashlib.sha256(content).hexdigest()
    return agent_task_id(agent_id, _derive("task", owner, agent_id, message_id, digest))


def agent_task_id(agent_id: str, unique: str) -> str:
    """Return the task id of an agent with a unique end."""
    return f"{agent_id}-{unique}"


def is_agent_id(text: str) -> bool:
    """Return True for an agent id, which is part of addresses, scopes and task ids.

    Its length is limited because Temporal's SQL stores have 255 bytes for the id of a task, with those
    of its sub-agents' calls.
    """
    return _AGENT_ID.fullmatch(text) is not None


@lru_cache(maxsize=1024)
def derive_context_id(task_id: str) -> str:
    """Return the context of a task whose client sent none."""
    return _derive("context", task_id)


def _derive(*words: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, _MARK.join(words)))


def unique_message_id(message_id: str, mark: str) -> str:
    """Return a distinct id for one of several messages to which their client gave the same.

    Ids of clients have no control characters.
    """
    return f"{message_id}{_MARK}{mark}"


def message_identity(message_id: str) -> str:
    """Return the identity of a message within its task: its mark, or else its id."""
    shown, mark, given = message_id.partition(_MARK)
    return given if mark else shown


def message_update_id(message_id: str) -> str:
    """Return the id of the update that adds a message to its task; those of our own begin otherwise."""
    return f"message/{message_identity(message_id)}"


def key_mark(key: str) -> str:
    """Return the mark of messages that came with an Idempotency-Key."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def has_mark(message_id: str, key: str) -> bool:
    """Return True for a message with this Idempotency-Key."""
    return message_id.endswith(f"{_MARK}{key_mark(key)}")


def view_message_id(message_id: str) -> str:
    """Return the client's own id of a message."""
    return message_id.partition(_MARK)[0]


def place_in_queues(owner: str, priority: int | None) -> Priority:
    """Return the queue position of a task's work; sub-agents and all calls inherit it.

    `priority` is 1 (first) to 5, None for 3. Within a priority, each owner gets an equal share,
    whatever the amount of its work. Temporal limits the key to 64 bytes, so it is a digest.
    """
    return Priority(priority_key=priority, fairness_key=hashlib.sha256(owner.encode()).hexdigest()[:32])


def task_queue_of(kind: str, task_queue: str) -> str:
    """Return the queue of one kind of work (`WORKER_QUEUES`) in the Everloop with this queue of workflows.

    With queues of their own, no kind waits for another: slow webhooks, long model calls, narrators,
    each of which runs as long as its task.
    """
    return task_queue if kind == WORKFLOWS_QUEUE else f"{task_queue}-{kind}"


class TaskUnnamedError(ValueError):
    """The id of a task, or of its context, is empty: it is omitted from calls of activities."""

    def __init__(self) -> None:
        super().__init__(
            "a call does not say of which task it is: expected the interceptor ActivityTasks, which writes "
            "the ids that Temporal knows into each call of an activity; build the worker with it"
        )


def nonempty_id(name: str) -> str:
    """Return an id for use in keys, where an empty one would be the same for all tasks.

    Raises:
        TaskUnnamedError: it is empty.
    """
    if not name:
        raise TaskUnnamedError
    return name


def root_task_id(task_id: str) -> str:
    """Return the client's task above a sub-agent's task, or the task's own id."""
    return task_id.partition("/")[0]


def child_path(task_id: str) -> tuple[str, ...]:
    """Return the keys of the calls from the client's task down to this one; empty for its own."""
    return tuple(task_id.split("/")[1:])


def push_workflow_id(task_id: str, config_id: str) -> str:
    """Return the id of the workflow that notifies one client of a task; a long config id becomes a digest.

    Temporal's SQL stores have 255 bytes for the id of a workflow, which one config id may have alone.
    """
    if len(config_id.encode()) > MAX_PLAIN_CONFIG_ID_BYTES:
        config_id = _derive("push-workflow", config_id)
    return f"{task_id}/push/{config_id}"


def derive_push_config_id(task_id: str, url: str) -> str:
    """Return the id of a config without one from its client: the same for the same webhook."""
    return _derive("push-config", task_id, url)


def derive_deletion_id(owner: str, kind: str, *ids: str) -> str:
    """Return the id of a deletion, also that of its workflow. It reveals no other id."""
    return f"deletion-{_derive('deletion', owner, kind, *ids)}"


def derive_push_event_id(task_id: str, config_id: str, event: str) -> str:
    """Return the id by which a webhook recognizes a repeated notification."""
    return _derive("push-event", task_id, config_id, event)


def child_task_id(task_id: str, key: str) -> str:
    """Return the task id of the sub-agent of a tool call; `key` names the call (`call_key`).

    After a Reset the same request finds the earlier task, with the recorded results of its tools, and
    another request at the same place is another task.
    """
    return f"{task_id}/{key}"


def relayed_question(call_id: str, question_id: str) -> str:
    """Return the id of a sub-agent's question in the parent task."""
    return f"{call_id}/{question_id}"


def is_child_task_id(task_id: str) -> bool:
    """Return True for the task of a sub-agent."""
    return "/" in task_id


def name_calls(calls: Iterable[ToolCall], reply: int) -> tuple[ToolCall, ...]:
    """Return the calls of a reply under ids of our own, such as `r00012c01`: the first of the reply at 12.

    `reply` is the position of the reply in the transcript. Providers generate random ids for each
    request; these are the same when the model is called again after a Reset. They are nine letters and
    digits, the one form that all providers accept back (Mistral accepts no other).
    """
    counts = dict[tuple[str, str], int]()
    named: list[ToolCall] = []
    for number, call in enumerate(calls, 1):
        repeat = counts.get(same := (call.name, call.arguments), 0)
        named.append(call.model_copy(update={"id": f"r{reply:05}c{number:02}", "repeat": repeat}))
        counts[same] = repeat + 1
    return tuple(named)


def call_key(call: ToolCall) -> str:
    """Return the key of a tool call within its task, from its reply, its tool and its arguments.

    After a Reset the model is called again. The same call of the reply at the same position has the
    same key, whatever precedes it in that reply; another call at its place has another one.
    """
    digest = hashlib.sha256(_MARK.join((call.name, call.arguments, str(call.repeat))).encode()).hexdigest()
    return f"{_NUMBER_IN_REPLY.sub('', call.id)}-{digest[:8]}"


RESULT_PREFIX = "everloop-result-"
"""Prefix of the ids of artifacts that hold a tool's result, for the task alone."""


def result_artifact(task_id: str, result_name: str) -> str:
    """Return the artifact that holds a complete long result; `result_name` names its call.

    It may be the call of another task of the context, whose history this one received (`stored_result_name`).
    """
    return RESULT_PREFIX + (
        result_name if "/" in result_name else stored_result_name(task_id, result_name)
    ).replace("/", "-")


def stored_result_name(task_id: str, result_name: str) -> str:
    """Return the name by which other tasks of the context read a stored result of a task."""
    return (
        result_name
        if "/" in result_name
        else f"{hashlib.sha256(task_id.encode()).hexdigest()[:12]}/{result_name}"
    )


def context_key(owner: str, context_id: str) -> str:
    """Return the key of a context in stores that outlive tasks. It differs between owners.

    Raises:
        TaskUnnamedError: the context has no id.
    """
    return f"{quoted(owner)}:{quoted(nonempty_id(context_id))}"


def quoted(name: str) -> str:
    """Quote a client-chosen name, so that it cannot look like another key."""
    return quote(name, safe="")
