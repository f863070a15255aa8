"""A colleague for tests: a remote agent with scripted behaviour and recorded requests.

Its action is the first word of the request; the rest are its arguments.
"""

import asyncio
from dataclasses import dataclass, field

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

FILE = b"\x00\x01 a file"


@dataclass
class RemoteAgent:
    """The recorded requests of the colleague, and the test's settings for it.

    `gate` releases "wait". `cut` is the number of events after which the next stream is cut off (None: it is
    not), `refusals` are the HTTP statuses of the next calls, each with `retry_after` as its header. `wants`
    is the token that calls need, `refuses` a text that no message may have. `lacks` are operations that it
    does not have, whatever its card says. `nonsense` is served as its card. `hosts` are those that the card
    may name besides its own.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    canceled: asyncio.Event = field(default_factory=asyncio.Event)
    messages: list[pb.Message] = field(default_factory=list[pb.Message])
    methods: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    cut: int | None = None
    refusals: list[int] = field(default_factory=list[int])
    retry_after: str = "0"
    wants: str = ""
    refuses: str = ""
    lacks: set[str] = field(default_factory=set[str])
    nonsense: object = None
    cards: int = 0
    url: str = ""
    card: pb.AgentCard = field(default_factory=pb.AgentCard)
    hosts: list[str] = field(default_factory=list[str])
    _calls: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def message_ids(self) -> list[str]:
        """Return the ids of the messages that reached the agent, in order."""
        return [message.message_id for message in self.messages]

    @property
    def get_method(self) -> str:
        """Return the name of GetTask in the server's version."""
        return "tasks/get" if "message/stream" in self.methods else "GetTask"

    @property
    def subscribe_method(self) -> str:
        """Return the name of SubscribeToTask in the server's version."""
        return "tasks/resubscribe" if "message/stream" in self.methods else "SubscribeToTask"

    async def hear(self, method: str, headers: dict[str, str]) -> None:
        """Record a call."""
        async with self._calls:
            self.methods.append(method)
            self.headers.append(headers)
            self._calls.notify_all()

    async def until_called(self, method: str, times: int = 1) -> None:
        """Wait for this number of calls of a method."""
        async with self._calls:
            await self._calls.wait_for(lambda: self.methods.count(method) >= times)


class Colleague(AgentExecutor):
    """Runs the action in the first word of a request; the rest are its arguments."""

    def __init__(self, remote: RemoteAgent) -> None:
        self._remote = remote

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message
        assert context.task_id
        assert context.context_id
        self._remote.messages.append(context.message)
        said = context.get_user_input()
        if context.current_task is None and said.startswith("greet"):
            parts = [pb.Part(text=f"Hello, {said.removeprefix('greet ')}!")]
            await event_queue.enqueue_event(
                pb.Message(message_id="greeting", role=pb.Role.ROLE_AGENT, parts=parts, context_id="c")
            )
            return
        if context.current_task is None:
            await event_queue.enqueue_event(_task(context))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task and context.current_task.history:
            await self._go_on(updater, context)
        else:
            await self._work(updater, said)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        self._remote.canceled.set()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def _work(self, updater: TaskUpdater, said: str) -> None:
        word, _, rest = said.partition(" ")
        match word:
            case "ask":
                await updater.requires_input(_says(updater, "Which one?"))
            case "want":
                asked = {"kind": "data", "text": "Which?", "json_schema": {"type": rest}}
                described = pb.Part(data=ParseDict({"questions": [asked]}, Value()))
                await updater.requires_input(updater.new_agent_message([described]))
            case "auth":
                await updater.requires_auth(_says(updater, "The key, please."))
            case "fail":
                await updater.failed(_says(updater, rest))
            case "reject":
                await updater.reject(_says(updater, rest))
            case "write":
                is_text = rest and not rest.startswith("http")
                await (self._spell(updater, rest) if is_text else self._write(updater, rest))
            case "say":
                await updater.complete(_says(updater, rest))
            case _:
                await self._wait(updater, rest)

    async def _wait(self, updater: TaskUpdater, rest: str) -> None:
        await updater.start_work(_says(updater, "half done"))
        self._remote.begun.set()
        await self._remote.gate.wait()
        await updater.add_artifact([pb.Part(text=f"done {rest}")], artifact_id="response")
        await updater.complete()

    async def _go_on(self, updater: TaskUpdater, context: RequestContext) -> None:
        assert context.message
        assert context.current_task
        asked = context.current_task.history[0].parts[0].text
        answered = len([one for one in self._remote.messages if one.task_id == context.task_id]) - 1
        said = "+".join(part.text for part in context.message.parts)
        if asked == "ask slowly":
            await updater.add_artifact([pb.Part(text="so far")], artifact_id="draft")
            self._remote.begun.set()
            await self._remote.gate.wait()
        if asked == "ask twice" and answered < 2:
            await updater.requires_input(_says(updater, "Which one?"))
            return
        await updater.add_artifact([pb.Part(text=f"took {said}")], artifact_id="response")
        await updater.complete()

    async def _spell(self, updater: TaskUpdater, rest: str) -> None:
        for number, piece in enumerate(rest.split(",")):
            part = pb.Part(text=piece, media_type="text/plain")
            await updater.add_artifact([part], artifact_id="response", append=number > 0)
        await updater.complete()

    async def _write(self, updater: TaskUpdater, url: str) -> None:
        """Write artifacts of all kinds; one at a URL if it is given."""
        await updater.start_work()
        if url:
            await updater.add_artifact([pb.Part(url=url, filename="named.txt")], artifact_id="named")
            await updater.complete()
            return
        table = ParseDict({"rows": [1, 2]}, Value())
        one = pb.Part(raw=FILE, media_type="application/x-one", filename="one.bin")
        await updater.add_artifact([pb.Part(text="A te")], artifact_id="text", name="A text")
        await updater.add_artifact([pb.Part(text="xt.")], artifact_id="text", append=True, last_chunk=True)
        await updater.add_artifact([pb.Part(data=table)], artifact_id="data")
        await updater.add_artifact([one, pb.Part(text="and words")], artifact_id="bytes")
        await updater.add_artifact(
            [pb.Part(url=f"{self._remote.url}/file", filename="two.bin")], artifact_id="own"
        )
        await updater.add_artifact([pb.Part(url="http://elsewhere.example/f")], artifact_id="foreign")
        await updater.add_artifact([pb.Part(url=f"{self._remote.url}/gone")], artifact_id="gone")
        await updater.complete(_says(updater, "All is written."))


def _task(context: RequestContext) -> pb.Task:
    assert context.message
    return pb.Task(
        id=context.task_id,
        context_id=context.context_id,
        status=pb.TaskStatus(state=pb.TaskState.TASK_STATE_SUBMITTED),
        history=[context.message],
    )


def _says(updater: TaskUpdater, text: str) -> pb.Message:
    return updater.new_agent_message([pb.Part(text=text)])
