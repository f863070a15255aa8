"""Types of the failures that cross from activities to the workflow, and from the workflow to the gateway."""

TRANSCRIPT_MISSING = "TranscriptMissing"
"""The transcript cache does not hold the messages the workflow named; send them again. Not retryable."""

MODEL_REFUSED = "ModelRefused"
"""The provider refused the request (wrong key, unknown model, bad request). Not retryable."""

MODEL_UNAVAILABLE = "ModelUnavailable"
"""The provider could not answer now (429, 5xx, connection). Retryable until the attempts are used up."""

CONTEXT_TOO_LONG = "ContextTooLong"
"""The transcript is longer than the model's context window. Not retryable."""

BLOB_MISSING = "BlobMissing"
"""A large payload is no longer in the blob store, or no longer what was stored; the message names its key.
Not retryable."""

AGENT_UNKNOWN = "AgentUnknown"
"""This worker has no agent of that id. Retryable: another worker may have it."""

ITERATION_LIMIT = "IterationLimit"
"""The task used up its iterations."""

TOKEN_LIMIT = "TokenLimit"  # noqa: S105 -- tokens of a model, not a password
"""The task used up its tokens."""

COST_LIMIT = "CostLimit"
"""The task used up its money."""

TIME_LIMIT = "TimeLimit"
"""The task ran for as long as it may."""

TOOL_FAILURE_LIMIT = "ToolFailureLimit"
"""Too many iterations in a row had no tool call that worked."""

TRANSCRIPT_LIMIT = "TranscriptLimit"
"""The transcript of the task got too large to go along with it."""

FILES_UNAVAILABLE = "FilesUnavailable"
"""The store of files and artifacts is away. Retryable."""

ATTACHMENT_LOST = "AttachmentLost"
"""A file that a schedule keeps for its tasks is not there any more."""

NO_ARTIFACT = "NoArtifact"
"""The agent has to leave an artifact, and the model wrote none even when it was made to."""

PRICE_UNKNOWN = "PriceUnknown"
"""The agent limits its cost, and nobody knows what the model costs. Not retryable."""

TOOL_FAILED = "ToolFailed"
"""A tool failed, and its definition says that it is tried again."""

NOT_QUICK = "NotQuick"
"""A quick tool took too long, or its result is too large, to run inside the workflow. Not retryable there: it
is called like any other tool."""

OVERTAKEN = "Overtaken"
"""Another attempt has taken the call over. Retryable: the next attempt waits for that one."""

INVALID_ANSWER = "InvalidAnswer"
"""A message is no answer to the question that the task waits with."""

TASK_TERMINAL = "TaskTerminal"
"""The task has ended and takes no more messages."""

PLUGIN_VETO = "PluginVeto"
"""A plugin does not let the task go on; the message is its reason. Not retryable."""

PLUGIN_FAILED = "PluginFailed"
"""A hook or a prompt of a plugin raised; the message names the plugin. Not retryable."""

TOOLS_UNAVAILABLE = "ToolsUnavailable"
"""A plugin could not list its tools now; the message names it. Retryable a few times."""

OUTPUT_INVALID = "OutputInvalid"
"""The answer did not fit the agent's output model, not even after the model was told what is wrong."""

REPLY_CUT = "ReplyCut"
"""The reply was cut off at the model's limit of tokens, or a call in it could not be read."""

CONTENT_FILTERED = "ContentFiltered"
"""The provider's content filter stopped the reply."""

MODEL_DECLINED = "ModelDeclined"
"""The model declined to answer."""

EMPTY_REPLY = "EmptyReply"
"""The model answered with nothing."""

LIMITS = frozenset({ITERATION_LIMIT, TOKEN_LIMIT, COST_LIMIT, TIME_LIMIT, TOOL_FAILURE_LIMIT})
"""Those of a task that would end there again: limits are pinned when it begins."""
