"""Keys of Redis. The text in braces is the hash slot: the keys of one task share it."""

from urllib.parse import quote, unquote

from everloop.workflows.contract.names import nonempty_id, quoted


def _task(task_id: str) -> str:
    """Return the prefix of a task's keys: they share the hash slot of the client's task, with its sub-agents.

    Raises:
        TaskUnnamedError: The id is empty.
    """
    root, slash, path = nonempty_id(task_id).partition("/")
    return f"everloop:task:{{{root}}}{slash}{path}"


def head_key(task_id: str) -> str:
    """Redis hash: state of the log of a task, as far as fences and lists need it."""
    return f"{_task(task_id)}:head"


def log_key(task_id: str) -> str:
    """Redis stream: the log of a task."""
    return f"{_task(task_id)}:log"


def snapshot_key(task_id: str) -> str:
    """Redis hash: the fold of the log up to a position."""
    return f"{_task(task_id)}:snapshot"


def registry_key(task_id: str) -> str:
    """Redis hash: every key of a client's task and of its sub-agents → seconds that it lives after the end.

    It has the field `open` while the task is open.
    """
    return f"{_task(task_id).partition('}')[0]}}}:registry"


def tool_result_key(digest: str) -> str:
    """Redis string: cached result of a tool for certain arguments."""
    return f"everloop:tool-result:{digest}"


def route_key(task_id: str) -> str:
    """Redis string: the result of a message that was answered without a task."""
    return f"{_task(task_id)}:route"


def transcript_key(task_id: str, run_id: str) -> str:
    """Redis hash: position → message of the transcript of one run."""
    return f"{_task(task_id)}:transcript:{run_id}"


def records_key(task_id: str) -> str:
    """Redis hash: records of the calls of a task: attempts, leases, state."""
    return f"{_task(task_id)}:records"


def outcomes_key(task_id: str) -> str:
    """Redis hash: call → its outcome."""
    return f"{_task(task_id)}:outcomes"


def secrets_key(task_id: str) -> str:
    """Redis hash: name → secret that the client supplied for the tools of a task."""
    return f"{_task(task_id)}:secrets"


def push_configs_key(task_id: str) -> str:
    """Redis hash: webhooks of a task, and what they have acknowledged."""
    return f"{_task(task_id)}:push"


def conversation_key(context: str) -> str:
    """Redis list: messages of a context, which `context_key` names."""
    return f"everloop:conversation:{{{context}}}:messages"


def conversation_positions_key(context: str) -> str:
    """Redis hash: state of the messages of a context.

    Positions: `start` of the first stored one, `cleared` up to which they were cleared, `task:<id>` of the
    first of each task. `kept`: seconds that they are stored after the last one, which gives its time; `life`:
    seconds of the requested retention. `forgotten`: how often a task was deleted.
    """
    return f"everloop:conversation:{{{context}}}:positions"


def conversation_summaries_key(context: str) -> str:
    """Redis hash: level and range of positions → summary of the messages of a context."""
    return f"everloop:conversation:{{{context}}}:summaries"


CONVERSATIONS_KEY = "everloop:conversations"
"""Redis sorted set: every context with a conversation, by a time when it had a message, in milliseconds."""


def owner_tasks_key(owner: str) -> str:
    """Redis sorted set: the tasks of an owner, in the rows of `log/rows.py`."""
    return f"{owner_prefix(owner)}:tasks"


OWNER_LISTS_KEYS = "everloop:owner:*:[ct]*s"
"""Pattern of these keys, and of those of the contexts of owners."""


def owner_of_list_key(key: str) -> str:
    """Return the owner of such a key."""
    return unquote(key.partition("{")[2].rpartition("}")[0])


def owner_contexts_key(owner: str) -> str:
    """Redis sorted set: contexts of an owner, as strings, by the last status of one of their tasks."""
    return f"{owner_prefix(owner)}:contexts"


def context_info_key(owner: str, context_id: str) -> str:
    """Redis hash: a context and its tasks, in the fields of `log/contexts.py`."""
    return f"{owner_prefix(owner)}:context:{quoted(context_id)}"


RETENTIONS_KEY = "everloop:retentions"
"""Redis sorted set: contexts and tasks with a retention, by the time of their next check."""


def announced_tasks_key(owner: str) -> str:
    """Redis sorted set: tasks of an owner that are about to start, by the time until which they count."""
    return f"{owner_prefix(owner)}:announced"


def new_schedules_key(owner: str) -> str:
    """Redis sorted set: schedules of an owner that Temporal may not list yet, by the end of that time."""
    return f"{owner_prefix(owner)}:schedules"


APPROVALS_KEY_PREFIX = "everloop:approvals:"
"""Prefix of a scope: tasks that wait for an answer with this scope, by the time of the question."""

OPEN_TASKS_KEY = "everloop:open"
"""Redis sorted set: all open tasks of clients, by the time of their last status, in microseconds.

The id of a task that was opened again is followed by the event that opened it.
"""


def request_rate_key(owner: str) -> str:
    """Redis string: the time up to which an owner's requests have used up their rate."""
    return f"{owner_prefix(owner)}:requests"


def provider_key(provider: str) -> str:
    """Redis hash: state of a provider of models, and the times up to which its rates are used up.

    The keys of one provider share the hash slot of its name.
    """
    return f"everloop:provider:{{{quoted(provider)}}}"


def provider_calls_key(provider: str) -> str:
    """Redis sorted set: model calls in progress at a provider, by the time until which they count."""
    return f"{provider_key(provider)}:calls"


def provider_tickets_key(provider: str) -> str:
    """Redis sorted set: model calls that wait, by the time of their turn."""
    return f"{provider_key(provider)}:tickets"


def provider_failures_key(provider: str) -> str:
    """Redis list: times of the last failures of a provider, since its last answer."""
    return f"{provider_key(provider)}:failures"


def owner_prefix(owner: str) -> str:
    """Return the prefix of an owner's keys."""
    return f"everloop:owner:{{{quoted(owner)}}}"


# Artifacts and their blobs.

ARTIFACT_RECORD_PREFIX = "everloop:artifact:"
"""Prefix of an artifact's name, Redis string: its record."""

ARTIFACT_TAIL_PREFIX = "everloop:artifact-tail:"
"""Prefix of an artifact's name and the index of a part, Redis string: the tail of the part."""

EXPIRING_ARTIFACTS_KEY = "everloop:artifacts:expiring"
"""Redis sorted set: keys of the records of all artifacts, by a time before which they do not expire."""

PENDING_BLOBS_KEY = "everloop:artifact-blobs:pending"
"""Redis sorted set: keys of the sets of pending blobs, by the time of the last put into each."""

ARTIFACTS_LISTED_SINCE_KEY = "everloop:artifacts:known-since"
"""Redis string: the time since which this Redis has all artifacts, in seconds."""


def context_tag(context: str) -> str:
    """Return the hash tag of a context: the keys of its artifacts share a slot."""
    return f"{{{quote(context, safe=':')}}}"


def context_artifacts_key(context: str) -> str:
    """Redis sorted set: keys of the records of the artifacts of a context, by the time of their creation."""
    return f"everloop:context:{context_tag(context)}:artifacts"


def pending_blobs_key(context: str) -> str:
    """Redis sorted set: blobs of a context's artifacts that no record names, by the start of that time."""
    return f"{PENDING_BLOBS_PREFIX}{context_tag(context)}:pending-blobs"


PENDING_BLOBS_PREFIX = "everloop:context:"
"""Prefix of a context's tag, in the keys of sets of its artifacts."""


BLOB_PREFIX = "everloop:blob:"
"""Prefix of a blob's key, Redis string or hash: a blob in Redis itself."""

STORE_ID_KEY = "everloop:blob-store"
"""Redis string: id of the blob store in use. It has no time to live."""

DIRECTORY_KEY = "everloop:blob-store:directory"
"""Redis string: path of the local directory in use, for other processes of the machine."""

LOCK_KEY = "everloop:blob-store:lock"
"""Redis string: held by the process that chooses the id."""


def wake_key(reader_id: str) -> str:
    """Redis stream: an entry wakes the blocked reader of one gateway process."""
    return f"everloop:reader:{reader_id}:wake"
