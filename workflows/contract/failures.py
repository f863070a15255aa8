"""Types of the failures that cross from activities to the workflow, and from the workflow to the gateway."""

TRANSCRIPT_MISSING = "TranscriptMissing"
"""The transcript cache does not hold the messages the workflow named; send them again. Not retryable."""

MODEL_REFUSED = "ModelRefused"
"""The provider refused the request (wrong key, unknown model, bad request). Not retryable."""

MODEL_UNAVAILABLE = "ModelUnavailable"
"""The provider could not answer now (429, 5xx, connection). Retryable until the attempts are used up."""

CONTEXT_TOO_LONG = "ContextTooLong"
"""The transcript is longer than the model's context window. Not retryable."""

AGENT_UNKNOWN = "AgentUnknown"
"""This worker has no agent of that id. Retryable: another worker may have it."""

ITERATION_LIMIT = "IterationLimit"
"""The task used up its iterations."""

TASK_TERMINAL = "TaskTerminal"
"""The task has ended and takes no more messages."""
