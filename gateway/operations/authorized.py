"""Lets callers do what their scopes allow, on every binding alike."""

from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, aclosing, contextmanager

from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb

from everloop.agents.registry import AgentRegistry
from everloop.gateway.auth.scopes import READ, WRITE, check_agent, check_scope
from everloop.gateway.context import agent_of, caller_of
from everloop.gateway.errors import TooManyRequestsError, UnavailableNowError, a2a_errors
from everloop.gateway.instruments import record_refused

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
            record_refused("streams")
            raise TooManyRequestsError(
                f"too many open streams: this server holds {self._most_of_owner} streams and waiting "
                "requests of one owner; close one, or try again later",
                retry_after=RETRY_AFTER,
            )
        if self._open.total() >= self._most:
            record_refused("streams")
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


SCOPES: Mapping[str, str | None] = {
    "on_message_send": WRITE,
    "on_message_send_stream": WRITE,
    "on_cancel_task": WRITE,
    "on_create_task_push_notification_config": WRITE,
    "on_delete_task_push_notification_config": WRITE,
    "on_get_task": READ,
    "on_list_tasks": READ,
    "on_subscribe_to_task": READ,
    "on_get_task_push_notification_config": READ,
    "on_list_task_push_notification_configs": READ,
    "on_get_extended_agent_card": None,
}
"""What each operation takes, besides its agent; None: that the caller is known, which bindings see to."""


class AuthorizedHandler(RequestHandler):
    """Refuses what the caller's scopes do not allow, and leaves the rest to another handler.

    A stream that is refused yields nothing.
    """

    def __init__(self, handler: RequestHandler, agents: AgentRegistry, streams: OpenStreams) -> None:
        self._handler = handler
        self._agents = agents
        self._streams = streams

    async def on_message_send(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> pb.Task | pb.Message:
        self._check("on_message_send", context)
        with self._held(context):  # it may wait for the end of the task
            return await self._handler.on_message_send(params, context)

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        self._check("on_message_send_stream", context)
        with self._held(context):
            async with aclosing(self._handler.on_message_send_stream(params, context)) as events:
                async for event in events:
                    yield event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        self._check("on_subscribe_to_task", context)
        with self._held(context):
            async with aclosing(self._handler.on_subscribe_to_task(params, context)) as events:
                async for event in events:
                    yield event

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task | None:
        self._check("on_get_task", context)
        return await self._handler.on_get_task(params, context)

    async def on_list_tasks(
        self, params: pb.ListTasksRequest, context: ServerCallContext
    ) -> pb.ListTasksResponse:
        self._check("on_list_tasks", context)
        return await self._handler.on_list_tasks(params, context)

    async def on_cancel_task(
        self, params: pb.CancelTaskRequest, context: ServerCallContext
    ) -> pb.Task | None:
        self._check("on_cancel_task", context)
        return await self._handler.on_cancel_task(params, context)

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        self._check("on_create_task_push_notification_config", context)
        return await self._handler.on_create_task_push_notification_config(params, context)

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        self._check("on_get_task_push_notification_config", context)
        return await self._handler.on_get_task_push_notification_config(params, context)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        self._check("on_list_task_push_notification_configs", context)
        return await self._handler.on_list_task_push_notification_configs(params, context)

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        self._check("on_delete_task_push_notification_config", context)
        await self._handler.on_delete_task_push_notification_config(params, context)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        self._check("on_get_extended_agent_card", context)
        return await self._handler.on_get_extended_agent_card(params, context)

    @contextmanager
    def _held(self, context: ServerCallContext) -> Generator[None]:
        """Count a stream of the caller, before its message has any effect.

        Raises:
            TooManyRequestsError, UnavailableNowError: it is one too many.
        """
        with ExitStack() as held:
            with a2a_errors(context):
                held.enter_context(self._streams.hold(caller_of(context).owner))
            yield

    def _check(self, operation: str, context: ServerCallContext) -> None:
        """Refuse a call.

        Raises:
            ForbiddenError: the caller lacks the scope of the operation, or of the agent.
            InvalidParamsError: the call is for no agent of this server.
        """
        with a2a_errors(context):
            caller, scope = caller_of(context), SCOPES[operation]
            if scope:
                check_scope(caller, scope)
                check_agent(caller, agent_of(context, self._agents).id)
