"""The operations of A2A as one table, and the checks before each: scope, agent, open streams.

A binding finds the called operation, and checks its scope before it reads parameters. Parameters may
name the agent, which is checked here.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol, TypeVar

from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils import proto_utils
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from pydantic.alias_generators import to_snake

from everloop.agents.agent import Agent
from everloop.agents.registry import AgentRegistry
from everloop.gateway.auth.scopes import READ, WRITE, check_agent, check_scope
from everloop.gateway.context import Caller, Viewer, agent_of, caller_of, is_legacy
from everloop.gateway.errors import TooManyRequestsError, UnavailableNowError, a2a_errors
from everloop.gateway.gateway_instruments import requests_refused
from everloop.gateway.tasks.snapshots import held_by
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION

Event = pb.Task | pb.Message | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent
"""Events of a stream. The SDK declares this type beside its queues, which a gateway does not use."""


@dataclass(frozen=True)
class Operation:
    """Operation, independent of binding and version."""

    name: str
    """Name in A2A 1.0."""

    params: type[Message]

    scope: str | None
    """Required scope, besides that of the agent; None: any authenticated caller."""

    legacy_name: str = ""
    """Name in A2A 0.3 over JSON-RPC; empty if 0.3 lacks it."""

    @property
    def method(self) -> str:
        """The method of the SDK's `RequestHandler` that serves it."""
        return f"on_{_METHODS.get(self.name) or to_snake(self.name)}"

    @property
    def is_stream(self) -> bool:
        return self.name in {"SendStreamingMessage", "SubscribeToTask"}

    @property
    def may_wait(self) -> bool:
        """Whether it may last as long as its task."""
        return self.is_stream or self.name == "SendMessage"

    def authorize(self, caller: Caller) -> None:
        """Reject a caller without the scope, before the parameters are read.

        Raises:
            ForbiddenError: names the scope.
        """
        if self.scope:
            check_scope(caller, self.scope)

    def to_json(self, result: Any) -> dict[str, Any] | None:  # noqa: ANN401 -- whatever its method returns
        """Return the result, or an event of the stream, as JSON; None for an empty result."""
        if result is None:
            return None
        if isinstance(result, pb.ListTasksResponse):
            return _page_of_tasks(result)
        return MessageToDict(proto_utils.to_stream_response(result) if self.may_wait else result)


def _page_of_tasks(response: pb.ListTasksResponse) -> dict[str, Any]:
    """Return a page with all fields that A2A 1.0 §3.1.4 requires, and tasks in the form of GetTask."""
    return {
        "tasks": [MessageToDict(task) for task in response.tasks],
        "nextPageToken": response.next_page_token,
        "pageSize": response.page_size,
        "totalSize": response.total_size,
    }


_METHODS = {"SendMessage": "message_send", "SendStreamingMessage": "message_send_stream"}
"""Names of the SDK that differ from those of A2A."""

_PUSH = "tasks/pushNotificationConfig"
_ALL = (
    Operation("SendMessage", pb.SendMessageRequest, WRITE, "message/send"),
    Operation("SendStreamingMessage", pb.SendMessageRequest, WRITE, "message/stream"),
    Operation("GetTask", pb.GetTaskRequest, READ, "tasks/get"),
    Operation("ListTasks", pb.ListTasksRequest, READ),
    Operation("CancelTask", pb.CancelTaskRequest, WRITE, "tasks/cancel"),
    Operation("CreateTaskPushNotificationConfig", pb.TaskPushNotificationConfig, WRITE, f"{_PUSH}/set"),
    Operation("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest, READ, f"{_PUSH}/get"),
    Operation(
        "ListTaskPushNotificationConfigs", pb.ListTaskPushNotificationConfigsRequest, READ, f"{_PUSH}/list"
    ),
    Operation(
        "DeleteTaskPushNotificationConfig",
        pb.DeleteTaskPushNotificationConfigRequest,
        WRITE,
        f"{_PUSH}/delete",
    ),
    Operation("SubscribeToTask", pb.SubscribeToTaskRequest, READ, "tasks/resubscribe"),
    Operation(
        "GetExtendedAgentCard", pb.GetExtendedAgentCardRequest, None, "agent/getAuthenticatedExtendedCard"
    ),
)

OPERATIONS: Mapping[str, Operation] = {each.name: each for each in _ALL}
LEGACY_OPERATIONS: Mapping[str, Operation] = {each.legacy_name: each for each in _ALL if each.legacy_name}
_BY_METHOD = {each.method: each for each in _ALL}


# Number of open streams and waiting requests of a gateway process, in total and per owner.

RETRY_AFTER = 10
"""Seconds after which a client may retry. The end of a stream cannot be predicted."""


class OpenStreams:
    """Limits open streams: each costs a connection and memory as long as its client likes, even when idle.

    They are counted per process, and end with it.
    """

    def __init__(self, most: int, most_of_owner: int) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._open = Counter[str]()

    @contextmanager
    def hold(self, owner: str) -> Generator[None]:
        """Count one stream for as long as the block lasts.

        Raises:
            TooManyRequestsError: the owner has reached the limit.
            UnavailableNowError: the process has reached the limit. Another process may have room.
        """
        if self._open[owner] >= self._most_of_owner:
            requests_refused.add(1, {"limit": "streams"})
            raise TooManyRequestsError(
                f"too many open streams: this server holds {self._most_of_owner} streams and waiting "
                "requests of one owner; close one, or try again later",
                retry_after=RETRY_AFTER,
            )
        if self._open.total() >= self._most:
            requests_refused.add(1, {"limit": "streams"})
            raise UnavailableNowError(
                "this server holds as many streams as it can; try again, at another one if there is one",
                retry_after=RETRY_AFTER,
            )
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]


@dataclass(frozen=True)
class OperationCall:
    """Authorized call of an operation."""

    context: ServerCallContext
    caller: Caller
    agent: Agent

    @property
    def viewer(self) -> Viewer:
        return Viewer(self.caller.owner, self.agent.id)

    @property
    def is_legacy(self) -> bool:
        return is_legacy(self.context)

    @property
    def is_extended(self) -> bool:
        """Whether the client activated the events extension."""
        return EVENTS_EXTENSION in self.context.requested_extensions

    @property
    def held(self) -> ExitStack:
        """Resources that are released after the response."""
        return held_by(self.context.state)

    def header(self, name: str) -> str:
        headers: dict[str, str] = self.context.state.get("headers", {})
        return headers.get(name, "")


class OperationHandler(Protocol):
    """Object with methods that are operations."""

    @property
    def agents(self) -> AgentRegistry: ...
    @property
    def open_streams(self) -> OpenStreams: ...


_H = TypeVar("_H", bound=OperationHandler)
_P = TypeVar("_P")
_R = TypeVar("_R")


def operation(
    serve: Callable[[_H, _P, OperationCall], Awaitable[_R]],
) -> Callable[[_H, _P, ServerCallContext], Coroutine[Any, Any, _R]]:
    """Register a method for an operation of the table. It raises A2A errors only."""

    @wraps(serve)
    async def served(self: _H, params: _P, context: ServerCallContext) -> _R:
        with a2a_errors(), _admitted(self, _BY_METHOD[serve.__name__], context) as call:
            return await serve(self, params, call)

    return served


def stream_operation(
    serve: Callable[[_H, _P, OperationCall], AsyncGenerator[Event]],
) -> Callable[[_H, _P, ServerCallContext], AsyncGenerator[Event]]:
    """Register a streaming method, as `operation` does. A rejected stream yields nothing."""

    @wraps(serve)
    async def served(self: _H, params: _P, context: ServerCallContext) -> AsyncGenerator[Event]:
        with a2a_errors(), _admitted(self, _BY_METHOD[serve.__name__], context) as call:
            events = serve(self, params, call)
            del params  # it may be large, and the stream lasts as long as its task
            async with aclosing(events):
                async for event in events:
                    yield event

    return served


@contextmanager
def _admitted(
    handler: OperationHandler, called: Operation, context: ServerCallContext
) -> Generator[OperationCall]:
    """Find the agent of a call, and count the call while it lasts, before it has any effect.

    Raises:
        ForbiddenError: the caller lacks the scope of the agent.
        InvalidParamsError: this server has no such agent.
        TooManyRequestsError, UnavailableNowError: too many streams are open.
    """
    caller, agent = caller_of(context), agent_of(context, handler.agents)
    if called.scope:
        check_agent(caller, agent.id)
    with ExitStack() as held:
        if called.may_wait:
            held.enter_context(handler.open_streams.hold(caller.owner))
        yield OperationCall(context, caller, agent)
