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
from everloop.client.events import (
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
from everloop.client.extension.approvals import Approval, Decision, OpenQuestion
from everloop.client.extension.contexts import (
    Context,
    ConversationMessage,
    Deleted,
    Deletion,
    Removed,
    Retention,
)
from everloop.client.extension.operators import (
    AskedQuestion,
    HealthCheck,
    Obstacle,
    OperatorAction,
    OperatorSystem,
    OperatorTask,
    TaskQueue,
    WorkerProcess,
)
from everloop.client.extension.past import (
    ModelUsage,
    PastEvent,
    SubTask,
    ToolUsage,
    TotalUsage,
    TranscriptMessage,
    UsageReport,
)
from everloop.client.extension.schedules import Overlap, Schedule, ScheduledRun
from everloop.client.extension.stored import StoredArtifact, StoredPart
from everloop.client.sync import SyncClient

__all__ = ["AgentInfo", "Approval", "Artifact", "ArtifactChanged", "BusyError", "Client", "ClientError"]
__all__ += ["Content", "Context", "ConversationMessage", "Decision", "Deleted", "Deletion", "Done", "Event"]
__all__ += ["ExtensionMissingError", "ForbiddenError", "InvalidError", "ModelUsage", "NotFoundError"]
__all__ += ["OpenQuestion", "OtherEvent", "Overlap", "Part", "PastEvent", "Progress", "Question"]
__all__ += ["Reconnecting", "Removed", "Result", "Retention", "Schedule", "ScheduledRun", "ServerError"]
__all__ += ["StatusChanged", "StoredArtifact", "StoredPart", "SubTask", "SyncClient"]
__all__ += ["TaskNotCompletedError", "TaskState", "TextDelta", "Thought", "ToolCall", "ToolCallEnded"]
__all__ += ["ToolCallStarted", "ToolUsage", "TotalUsage", "TranscriptMessage", "UnauthenticatedError"]
__all__ += [
    "AskedQuestion",
    "HealthCheck",
    "Obstacle",
    "OperatorAction",
    "OperatorSystem",
    "OperatorTask",
    "TaskQueue",
]
__all__ += ["WorkerProcess"]
__all__ += ["UnreachableError", "UnsupportedError", "Usage", "UsageReport", "WaitTimeoutError"]
