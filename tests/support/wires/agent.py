"""An agent, called over one binding of A2A 1.0 with the messages of its definition."""

from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass, field
from typing import Any, cast

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from tests.support.wires.operations import OPERATIONS
from tests.support.wires.wires import Headers, Refusal, Wire


async def refusal(call: Awaitable[object]) -> Refusal:
    """Return the refusal of a call; fail if it succeeds."""
    try:
        answer = await call
    except Refusal as refused:
        return refused
    raise AssertionError(f"not refused, but answered with {answer}")


@dataclass(frozen=True)
class Agent:
    """`headers` are sent with each call (gRPC: metadata)."""

    wire: Wire
    headers: Headers = field(default_factory=dict[str, str])

    @property
    def binding(self) -> str:
        """The name of the binding in cards."""
        return self.wire.binding

    async def call(self, operation: str, request: Message) -> Any:  # noqa: ANN401 -- the operation's answer
        """Return the answer of an operation that does not stream.

        Raises:
            Refusal: The server answers with an error.
        """
        reply = await self.wire.send(operation, MessageToDict(request), self.headers)
        return ParseDict(reply.result or {}, OPERATIONS[operation].answer())

    async def stream(self, operation: str, request: Message) -> AsyncGenerator[pb.StreamResponse]:
        """Yield the events of a streaming operation; close it to leave early."""
        async for event in self.wire.stream(operation, MessageToDict(request), self.headers):
            yield event.response

    async def send(self, request: pb.SendMessageRequest) -> pb.Task:
        """Send a message and return the task."""
        answer: pb.SendMessageResponse = await self.call("SendMessage", request)
        assert answer.HasField("task"), answer
        return answer.task

    async def get(self, task_id: str, **fields: object) -> pb.Task:
        task = await self.call("GetTask", ParseDict({"id": task_id, **fields}, pb.GetTaskRequest()))
        return cast("pb.Task", task)

    async def cancel(self, task_id: str) -> pb.Task:
        return cast("pb.Task", await self.call("CancelTask", pb.CancelTaskRequest(id=task_id)))

    async def list(self, **fields: object) -> pb.ListTasksResponse:
        page = await self.call("ListTasks", ParseDict(fields, pb.ListTasksRequest()))
        return cast("pb.ListTasksResponse", page)

    def send_streaming(self, request: pb.SendMessageRequest) -> AsyncGenerator[pb.StreamResponse]:
        return self.stream("SendStreamingMessage", request)

    def subscribe(self, task_id: str) -> AsyncGenerator[pb.StreamResponse]:
        return self.stream("SubscribeToTask", pb.SubscribeToTaskRequest(id=task_id))
