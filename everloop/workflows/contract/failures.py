"""Types of the failures that cross from activities to the workflow, and from the workflow to the gateway."""

TRANSCRIPT_MISSING = "TranscriptMissing"
"""The transcript cache lacks the requested messages; send them again. Not retryable."""

MODEL_REFUSED = "ModelRefused"
"""The provider refused the request (wrong key, unknown model, bad request). Not retryable."""

MODEL_UNAVAILABLE = "ModelUnavailable"
"""The provider could not answer now (429, 5xx, connection). Retryable until the attempts are used up."""

CONTEXT_TOO_LONG = "ContextTooLong"
"""The transcript is longer than the model's context window. Not retryable."""

BLOB_MISSING = "BlobMissing"
"""A large payload is missing from the blob store, or differs from the stored one; the message names its
key. Not retryable."""

AGENT_UNKNOWN = "AgentUnknown"
"""This worker has no agent with that id. Retryable: another worker may have it."""

ITERATION_LIMIT = "IterationLimit"
"""The task used up its iterations."""

TOKEN_LIMIT = "TokenLimit"  # noqa: S105 -- tokens of a model, not a password
"""The task used up its tokens."""

COST_LIMIT = "CostLimit"
"""The task used up its money."""

TIME_LIMIT = "TimeLimit"
"""The task reached its time limit."""

TOOL_FAILURE_LIMIT = "ToolFailureLimit"
"""Too many iterations in a row had no successful tool call."""

TRANSCRIPT_LIMIT = "TranscriptLimit"
"""The transcript of the task is too large for a new run."""

FILES_UNAVAILABLE = "FilesUnavailable"
"""The store of files and artifacts is unavailable. Retryable."""

REQUEST_LIMIT = "TooMuchAsked"
"""The owner of a schedule has as many open tasks as one owner may have, or has sent as many requests."""

ATTACHMENT_LOST = "AttachmentLost"
"""A file that a schedule stores for its tasks is missing."""

NO_ARTIFACT = "NoArtifact"
"""The agent has to write an artifact, and the model wrote none even when the tool call was required."""

PRICE_UNKNOWN = "PriceUnknown"
"""The agent limits its cost, and the price of the model is unknown. Not retryable."""

TOOL_FAILED = "ToolFailed"
"""A tool failed, and its definition allows a retry."""

NOT_QUICK = "NotQuick"
"""A quick tool took too long, or its result is too large, to run inside the workflow. Not retryable there:
it is run like any other tool."""

OVERTAKEN = "Overtaken"
"""Another attempt has taken the call over. Retryable: the next attempt waits for that one."""

INVALID_ANSWER = "InvalidAnswer"
"""A message does not answer the question of the task."""

TASK_TERMINAL = "TaskTerminal"
"""The task has ended and accepts no more messages."""

TASK_BUSY = "TaskBusy"
"""The task has no room for more unread messages until its next model call."""

PLUGIN_VETO = "PluginVeto"
"""A plugin vetoed the task; the message is its reason. Not retryable."""

PLUGIN_FAILED = "PluginFailed"
"""A hook or a prompt of a plugin raised; the message names the plugin. Not retryable."""

TOOLS_UNAVAILABLE = "ToolsUnavailable"
"""A plugin could not list its tools now; the message names it. Retryable a few times."""

OUTPUT_INVALID = "OutputInvalid"
"""The answer did not match the agent's output model, even after the model had received the validation
error."""

REPLY_CUT = "ReplyCut"
"""The reply was cut off at the model's limit of tokens, or one of its calls was unreadable."""

CONTENT_FILTERED = "ContentFiltered"
"""The provider's content filter stopped the reply."""

MODEL_DECLINED = "ModelDeclined"
"""The model declined to answer."""

EMPTY_REPLY = "EmptyReply"
"""The model returned an empty answer."""

LIMITS = frozenset({ITERATION_LIMIT, TOKEN_LIMIT, COST_LIMIT, TIME_LIMIT, TOOL_FAILURE_LIMIT})
"""Limits that a task would reach again: they are pinned when it begins."""
