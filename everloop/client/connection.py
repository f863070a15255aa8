"""A2A's calls to one agent, by the transports of the SDK, and streams with the ids of their events."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager

from a2a.client.client import ClientCallContext
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb

from everloop.client.errors import translate_errors
from everloop.client.transport import EVENT_ID
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION

UNSTREAMED = 600.0
"""Seconds for the response of a server without streams, which may take as long as the task."""

PAGE = 50
"""Items per page of a list."""

Responses = AsyncGenerator[tuple[pb.StreamResponse, str]]
"""Responses of a stream, each with the id of its event."""


class Connection(ABC):
    """Connection to one agent. Errors are `ClientError`s."""

    def __init__(self, place: str, *, timeout: float | None = None, unstreamed: float = UNSTREAMED) -> None:
        self._place = place
        """The address of the server in errors."""
        self._timeout = timeout
        """Seconds for an immediate response; None for that of the HTTP client."""
        self._unstreamed = unstreamed
        self._transport: ClientTransport | None = None

    @abstractmethod
    async def card(self) -> pb.AgentCard:
        """Return the card of the agent."""

    @abstractmethod
    async def _connect(self) -> ClientTransport:
        """Return a new transport of the agent."""

    async def transport(self) -> ClientTransport:
        """Return the transport of the agent."""
        if self._transport is None:
            self._transport = await self._connect()
        return self._transport

    async def streams(self) -> bool:
        """Whether the agent offers streams."""
        return (await self.card()).capabilities.streaming

    async def is_everloop(self) -> bool:
        """Whether the agent has the events extension."""
        return is_everloop(await self.card())

    async def send(self, request: pb.SendMessageRequest) -> Responses:
        """Send a message; yield the responses, each with the id of its event."""
        transport, headers = await self.transport(), {"Idempotency-Key": request.message.message_id}
        if await self.streams():
            context = self._context(None, headers)
            stream = transport.send_message_streaming(request, context=context)
            async with aclosing(self._identified(stream, context)) as responses:
                async for response in responses:
                    yield response
            return
        request.configuration.return_immediately = True
        with self._translated():
            answer = await transport.send_message(request, context=self._context(self._unstreamed, headers))
        if answer.HasField("task"):
            yield pb.StreamResponse(task=answer.task), ""
        else:
            yield pb.StreamResponse(message=answer.message), ""

    async def subscribe(self, task_id: str, after: str) -> Responses:
        """Yield the responses of a task's stream, after an event if the server still has it."""
        transport = await self.transport()
        context = self._context(None, {"Last-Event-ID": after} if after else {})
        stream = transport.subscribe(pb.SubscribeToTaskRequest(id=task_id), context=context)
        async with aclosing(self._identified(stream, context)) as responses:
            async for response in responses:
                yield response

    async def get_task(self, task_id: str, history_length: int) -> pb.Task:
        """Return the current state of a task."""
        transport = await self.transport()
        request = pb.GetTaskRequest(id=task_id, history_length=history_length)
        with self._translated():
            return await transport.get_task(request, context=self._context(self._timeout))

    async def cancel_task(self, task_id: str) -> pb.Task:
        """Cancel a task, and return it."""
        transport, request = await self.transport(), pb.CancelTaskRequest(id=task_id)
        with self._translated():
            return await transport.cancel_task(request, context=self._context(self._timeout))

    async def list_tasks(
        self, request: pb.ListTasksRequest, limit: int | None = None
    ) -> AsyncGenerator[pb.Task]:
        """Yield tasks, the newest first, `limit` at most; pages are read as needed."""
        left, transport = limit, await self.transport()
        while left is None or left > 0:
            request.page_size = PAGE if left is None else min(PAGE, left)
            with self._translated():
                page = await transport.list_tasks(request, context=self._context(self._timeout))
            for task in page.tasks[:left]:
                yield task
            left = None if left is None else left - len(page.tasks)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return

    def _context(self, timeout: float | None, headers: Mapping[str, str] | None = None) -> ClientCallContext:
        return ClientCallContext(timeout=timeout, service_parameters=dict(headers or {}))

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Translate errors of a call into `ClientError`s."""
        with translate_errors(self._place):
            yield

    async def _identified(
        self, stream: AsyncGenerator[pb.StreamResponse], context: ClientCallContext
    ) -> Responses:
        async with aclosing(stream) as responses:
            with self._translated():
                async for response in responses:
                    yield response, context.state.get(EVENT_ID, "")


def is_everloop(card: pb.AgentCard) -> bool:
    """Whether an agent has the events extension."""
    return any(each.uri == EVENTS_EXTENSION for each in card.capabilities.extensions)
