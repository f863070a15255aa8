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
from everloop.client.extension import Approval, Decision
from everloop.client.sync import SyncClient

__all__ = ["AgentInfo", "Approval", "Artifact", "ArtifactChanged", "BusyError", "Client", "ClientError"]
__all__ += ["Content", "Decision", "Done", "Event", "ExtensionMissingError", "ForbiddenError"]
__all__ += ["InvalidError", "NotFoundError", "OtherEvent", "Part", "Progress", "Question", "Reconnecting"]
__all__ += ["Result", "ServerError", "StatusChanged", "SyncClient", "TaskNotCompletedError", "TaskState"]
__all__ += ["TextDelta", "Thought", "ToolCall", "ToolCallEnded", "ToolCallStarted", "UnauthenticatedError"]
__all__ += ["UnreachableError", "UnsupportedError", "Usage", "WaitTimeoutError"]
