"""A client of agents: of an Everloop, or of any other server of A2A 1.0 (docs/client.md)."""

from everloop.client.client import AgentInfo, Client
from everloop.client.content import Artifact, Content, Part
from everloop.client.errors import (
    BusyError,
    ClientError,
    ExtensionMissingError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    UnauthenticatedError,
    UnreachableError,
    UnsupportedError,
)
from everloop.client.extension.approval_calls import Approval, Decision, OpenQuestion
from everloop.client.extension.context_calls import (
    Context,
    ConversationMessage,
    Deleted,
    Deletion,
    Removed,
    Retention,
)
from everloop.client.extension.history_calls import (
    ModelUsage,
    PastEvent,
    SubTask,
    ToolUsage,
    TotalUsage,
    TranscriptMessage,
    UsageReport,
)
from everloop.client.extension.operator_calls import (
    AskedQuestion,
    HealthCheck,
    Obstacle,
    OperatorAction,
    OperatorSystem,
    OperatorTask,
    TaskQueue,
    WorkerProcess,
)
from everloop.client.extension.schedule_calls import Overlap, Schedule, ScheduledRun
from everloop.client.extension.stored_artifacts import StoredArtifact, StoredPart
from everloop.client.sync import SyncClient
from everloop.client.task_events import (
    ArtifactChanged,
    Done,
    Event,
    OtherEvent,
    Progress,
    Question,
    Reconnecting,
    Result,
    StatusChanged,
    TaskNotCompletedError,
    TaskState,
    TextDelta,
    Thought,
    ToolCall,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    WaitTimeoutError,
)

__all__ = ["AgentInfo", "Approval", "Artifact", "ArtifactChanged", "AskedQuestion", "BusyError", "Client"]
__all__ += ["ClientError", "Content", "Context", "ConversationMessage", "Decision", "Deleted", "Deletion"]
__all__ += ["Done", "Event", "ExtensionMissingError", "ForbiddenError", "HealthCheck", "InvalidError"]
__all__ += ["ModelUsage", "NotFoundError", "Obstacle", "OpenQuestion", "OperatorAction", "OperatorSystem"]
__all__ += ["OperatorTask", "OtherEvent", "Overlap", "Part", "PastEvent", "Progress", "Question"]
__all__ += ["Reconnecting", "Removed", "Result", "Retention", "Schedule", "ScheduledRun", "ServerError"]
__all__ += ["StatusChanged", "StoredArtifact", "StoredPart", "SubTask", "SyncClient", "TaskNotCompletedError"]
__all__ += ["TaskQueue", "TaskState", "TextDelta", "Thought", "ToolCall", "ToolCallEnded", "ToolCallStarted"]
__all__ += ["ToolUsage", "TotalUsage", "TranscriptMessage", "UnauthenticatedError", "UnreachableError"]
__all__ += ["UnsupportedError", "Usage", "UsageReport", "WaitTimeoutError", "WorkerProcess"]
