"""The operations of A2A as one table, and the checks before each: scope, agent, open streams.

A binding finds the operation that is called, and asks whether the caller has its scope before it reads any
parameters. For which agent the call is, they say: that is judged here.
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
from everloop.gateway.instruments import requests_refused
from everloop.gateway.tasks.snapshots import held_by
from everloop.runtime.protocol.tasks import EVENTS_EXTENSION

Event = pb.Task | pb.Message | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent
"""What a stream consists of. The SDK names it beside its queues, of which a gateway has none."""


@dataclass(frozen=True)
class Operation:
    """An operation, whatever binding and version it is called by."""

    name: str
    """What A2A 1.0 calls it."""

    params: type[Message]

    scope: str | None
    """What it takes, besides its agent; None: that the caller is known."""

    legacy_name: str = ""
    """What A2A 0.3 calls it over JSON-RPC; empty: 0.3 does not have it."""

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
        """Refuse a caller without the scope, before the parameters are looked at.

        Raises:
            ForbiddenError: it names the scope.
        """
        if self.scope:
            check_scope(caller, self.scope)

    def to_json(self, result: Any) -> dict[str, Any] | None:  # noqa: ANN401 -- whatever its method returns
        """Return the result, or an event of the stream, as JSON; None: it has none."""
        if result is None:
            return None
        if isinstance(result, pb.ListTasksResponse):
            return _page_of_tasks(result)
        return MessageToDict(proto_utils.to_stream_response(result) if self.may_wait else result)


def _page_of_tasks(response: pb.ListTasksResponse) -> dict[str, Any]:
    """Return a page with all that A2A 1.0 §3.1.4 requires of it, and tasks as GetTask shows them."""
    return {
        "tasks": [MessageToDict(task) for task in response.tasks],
        "nextPageToken": response.next_page_token,
        "pageSize": response.page_size,
        "totalSize": response.total_size,
    }


_METHODS = {"SendMessage": "message_send", "SendStreamingMessage": "message_send_stream"}
"""What the SDK calls otherwise than A2A does."""

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


# How many streams and waiting requests a gateway process holds open, in all and of one owner.

RETRY_AFTER = 10
"""Seconds after which a client may try again: nobody knows when a stream ends."""


class OpenStreams:
    """Each costs a connection and memory for as long as its client likes, whether anything happens or not.

    They are counted in this process alone: they end with it.
    """

    def __init__(self, most: int, most_of_owner: int) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._open = Counter[str]()

    @contextmanager
    def hold(self, owner: str) -> Generator[None]:
        """Count one for as long as the block lasts.

        Raises:
            TooManyRequestsError: the owner has as many as one may have.
            UnavailableNowError: the process has as many as it may; another one may have room.
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
class Call:
    """A call of an operation, by somebody who may make it."""

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
        """What is held until the answer is out."""
        return held_by(self.context.state)

    def header(self, name: str) -> str:
        headers: dict[str, str] = self.context.state.get("headers", {})
        return headers.get(name, "")


class Serves(Protocol):
    """Whose methods are operations."""

    @property
    def agents(self) -> AgentRegistry: ...
    @property
    def open_streams(self) -> OpenStreams: ...


_H = TypeVar("_H", bound=Serves)
_P = TypeVar("_P")
_R = TypeVar("_R")


def operation(
    serve: Callable[[_H, _P, Call], Awaitable[_R]],
) -> Callable[[_H, _P, ServerCallContext], Coroutine[Any, Any, _R]]:
    """Serve a method as the operation that the table names: it raises nothing but A2A errors."""

    @wraps(serve)
    async def served(self: _H, params: _P, context: ServerCallContext) -> _R:
        with a2a_errors(), _admitted(self, _BY_METHOD[serve.__name__], context) as call:
            return await serve(self, params, call)

    return served


def stream_operation(
    serve: Callable[[_H, _P, Call], AsyncGenerator[Event]],
) -> Callable[[_H, _P, ServerCallContext], AsyncGenerator[Event]]:
    """Serve a method as `operation` does; a stream that is refused yields nothing."""

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
def _admitted(handler: Serves, called: Operation, context: ServerCallContext) -> Generator[Call]:
    """Find out which agent a call is for, and count it while it lasts, before it has any effect.

    Raises:
        ForbiddenError: the caller lacks the scope of the agent.
        InvalidParamsError: the call is for no agent of this server.
        TooManyRequestsError, UnavailableNowError: it is one stream too many.
    """
    caller, agent = caller_of(context), agent_of(context, handler.agents)
    if called.scope:
        check_agent(caller, agent.id)
    with ExitStack() as held:
        if called.may_wait:
            held.enter_context(handler.open_streams.hold(caller.owner))
        yield Call(context, caller, agent)
