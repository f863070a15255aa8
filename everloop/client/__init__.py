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

__all__ = [
    "AgentInfo",
    "Artifact",
    "ArtifactChanged",
    "BusyError",
    "Client",
    "ClientError",
    "Content",
    "Done",
]
__all__ += ["Event", "ExtensionMissingError", "ForbiddenError", "InvalidError", "NotFoundError", "OtherEvent"]
__all__ += ["Part", "Progress", "Question", "Reconnecting", "Result", "ServerError", "StatusChanged"]
__all__ += ["SyncClient", "TaskNotCompletedError", "TaskState", "TextDelta", "Thought", "ToolCall"]
__all__ += [
    "ToolCallEnded",
    "ToolCallStarted",
    "UnauthenticatedError",
    "UnreachableError",
    "UnsupportedError",
]
__all__ += ["Usage", "WaitTimeoutError"]
