"""How everything is called: ids, queues, search attributes, Redis keys."""

import hashlib
import uuid
from urllib.parse import quote

from temporalio.common import SearchAttributeKey

from workflows.contract.messages import ToolCall

DEFAULT_TASK_QUEUE = "everloop"

WORKFLOW_TYPE = "AgentTask"

AGENT_ID = SearchAttributeKey.for_keyword("AgentId")
CONTEXT_ID = SearchAttributeKey.for_keyword("ContextId")
OWNER = SearchAttributeKey.for_keyword("Owner")
TASK_STATE = SearchAttributeKey.for_keyword("TaskState")
SEARCH_ATTRIBUTES = (AGENT_ID, CONTEXT_ID, OWNER, TASK_STATE)

_NAMESPACE = uuid.UUID("6b6f2b8e-6f0e-5a54-9a3e-3f1f4a3b7c11")


def derive_task_id(owner: str, agent_id: str, message_id: str, content: bytes) -> str:
    """Return the task id, which is also the workflow id, of a message that starts a task.

    The same message from the same owner gives the same id, so that a retried SendMessage finds its task.
    """
    digest = hashlib.sha256(content).hexdigest()
    return _derive("task", owner, agent_id, message_id, digest)


def derive_context_id(task_id: str) -> str:
    """Return the context of a task whose client named none."""
    return _derive("context", task_id)


def _derive(*words: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\x1f".join(words)))


def view_key(task_id: str) -> str:
    """Redis hash: the task view. Keys of one task share the hash slot of its id."""
    return f"everloop:task:{{{task_id}}}:view"


def history_key(task_id: str) -> str:
    """Redis list: messages of the task view."""
    return f"everloop:task:{{{task_id}}}:history"


def stream_key(task_id: str) -> str:
    """Redis stream: events of the task."""
    return f"everloop:task:{{{task_id}}}:events"


def transcript_key(task_id: str, run_id: str) -> str:
    """Redis hash: position → message of the transcript of one run."""
    return f"everloop:task:{{{task_id}}}:transcript:{run_id}"


def attempts_key(task_id: str, run_id: str) -> str:
    """Redis hash: model call of one run (position and tries) → how many attempts were made at it."""
    return f"everloop:task:{{{task_id}}}:attempts:{run_id}"


def tool_record_key(task_id: str, call_id: str) -> str:
    """Redis hash: what is known of one tool call."""
    return f"everloop:task:{{{task_id}}}:tool:{call_id}"


def secrets_key(task_id: str) -> str:
    """Redis hash: name → secret that the client supplied for the tools of a task."""
    return f"everloop:task:{{{task_id}}}:secrets"


def child_task_id(task_id: str, call_id: str) -> str:
    """Return the task id of the sub-agent that a tool call asks."""
    return f"{task_id}/{call_id}"


def call_key(call: ToolCall) -> str:
    """Name a tool call within its task by id, tool and arguments.

    The id alone is not enough: after a Reset the model is asked again, and may give it to another call.
    """
    digest = hashlib.sha256(f"{call.name}\x1f{call.arguments}".encode()).hexdigest()
    return f"{call.id}-{digest[:12]}"


def context_key(owner: str, context_id: str) -> str:
    """Name a context for stores that outlive tasks: contexts that two owners call the same are two."""
    return f"{_quoted(owner)}:{_quoted(context_id)}"


def owner_index_key(owner: str) -> str:
    """Redis sorted set: task ids of an owner by time of the last status, in milliseconds."""
    return f"everloop:owner:{_quoted(owner)}:tasks"


def context_index_key(owner: str, context_id: str) -> str:
    """Redis sorted set: task ids of an owner in one context, scored like the owner's index."""
    return f"everloop:owner:{_quoted(owner)}:context:{_quoted(context_id)}:tasks"


def _quoted(name: str) -> str:
    """Keep names that clients choose from looking like other keys."""
    return quote(name, safe="")


def wake_key(reader_id: str) -> str:
    """Redis stream: an entry wakes the blocked reader of one gateway process."""
    return f"everloop:reader:{reader_id}:wake"
