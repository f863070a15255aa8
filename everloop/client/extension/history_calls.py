"""History of a task, from its beginning."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from pydantic import JsonValue

from everloop.client.content import Content, Files, Json, message_json, message_of, parts_of
from everloop.client.extension.extension_calls import ExtensionCalls, ExtensionResponse, read
from everloop.client.fold import result_of
from everloop.client.task_events import Result
from everloop.workflows.contract.http_extension import Address


class PastEvent(ExtensionResponse):
    """An event of a task; the fields of `data` depend on the type."""

    id: str
    at: datetime
    type: str
    """taskCreated, message, modelCall, modelReply, toolCall, toolResult, status, artifact, narration or
    subAgent."""
    iteration: int = 0
    data: dict[str, JsonValue] = {}


class TranscriptMessage(ExtensionResponse):
    """A message as the model saw it. Fields of some messages only are in `model_extra`."""

    role: str
    """user, assistant, tool, …"""
    at: datetime | None = None
    """None: it is older than the task."""
    position: int = 0
    text: str = ""
    name: str = ""
    """Of the tool."""
    result: str = ""
    """Of the tool."""


class TotalUsage(ExtensionResponse):
    """Tokens, and their cost in US dollars; None for an unknown price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class ModelUsage(TotalUsage):
    """Usage of one model."""

    model: str
    calls: int = 0


class ToolUsage(ExtensionResponse):
    """Usage of one tool; `cost` is that of sub-agents."""

    tool: str
    calls: int = 0
    failures: int = 0
    seconds: float = 0
    cost: float | None = None


class UsageReport(ExtensionResponse):
    """Usage of a task, including its sub-agents."""

    total: TotalUsage
    models: list[ModelUsage] = []
    tools: list[ToolUsage] = []


@dataclass(frozen=True)
class SubTask:
    """The task of a sub-agent."""

    agent_id: str
    result: Result


class PastCalls(ExtensionCalls):
    """The part of `Client` for the history of tasks."""

    def events(self, task_id: str, *, after: str = "", owner: str = "") -> AsyncGenerator[PastEvent]:
        """Yield the events of a task, from its beginning or after the event `after`.

        They come from the history, including those that the stream of the task no longer holds.

        Args:
            task_id: The task, or that of a sub-agent.
            after: The id of a `PastEvent`.
            owner: Another owner than the caller's; requires the scope admin.

        Raises:
            NotFoundError: there is no such task.
        """
        asked = {"after": after, "owner": owner}
        return self._listed(Address.LIST_EVENTS, task_id, name="events", kind=PastEvent, query=asked)

    async def transcript(self, task_id: str, *, owner: str = "") -> list[TranscriptMessage]:
        """Return the messages of a task as the model saw them, with their times. Arguments as of `events`.

        Raises:
            NotFoundError: there is no such task.
        """
        answer = await self._request(Address.SHOW_TRANSCRIPT, task_id, query={"owner": owner})
        return [read(TranscriptMessage, each) for each in answer.get("messages", [])]

    async def usage(self, task_id: str, *, owner: str = "") -> UsageReport:
        """Return the usage of a task, by model and by tool. Arguments as of `events`.

        Raises:
            NotFoundError: there is no such task.
        """
        return read(UsageReport, await self._request(Address.SHOW_USAGE, task_id, query={"owner": owner}))

    async def children(self, task_id: str, *, owner: str = "") -> list[SubTask]:
        """Return the tasks of a task's sub-agents, without artifacts; `task` and `watch` accept their ids.

        Arguments as of `events`.

        Raises:
            NotFoundError: there is no such task.
        """
        answer = await self._request(Address.LIST_CHILDREN, task_id, query={"owner": owner})
        return [
            SubTask(each.get("agentId", ""), read_task(each["task"])) for each in answer.get("children", [])
        ]

    async def fork(  # noqa: PLR0913 -- all have names and defaults
        self,
        task_id: str,
        *content: Content,
        iteration: int | None = None,
        agent: str = "",
        model: str = "",
        files: Files = (),
        data: Json = None,
        metadata: Mapping[str, Json] | None = None,
        message_id: str = "",
    ) -> Result:
        """Start a task from the history of another, and return its initial state; `watch` follows it.

        No earlier call is repeated. Without content the new task works on the last message.

        Args:
            task_id: The original task.
            content: Texts and parts of the next message.
            iteration: The last iteration to keep, from 1; 0 keeps the messages before the first one.
                None: the last complete one.
            agent: The agent that continues; empty: the same agent.
            model: Its model; empty: the agent's.
            files: As of `send`.
            data: As of `send`.
            metadata: As of `send`.
            message_id: Identifies retries: requests with the same one start one fork.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: it cannot be forked there, or with these values; the message says why.
        """
        key = message_id or str(uuid4())
        body: dict[str, JsonValue] = {"agent": agent, "model": model}
        if iteration is not None:
            body["iteration"] = iteration
        if content or files or data is not None:
            parts = await parts_of(content, files, data)
            body["message"] = message_json(message_of(parts, metadata, message_id=key))
        answer = await self._request(Address.FORK_TASK, task_id, body=body, key=key)
        return read_task(answer["task"])


def read_task(task: dict[str, JsonValue]) -> Result:
    """Return a task from a response."""
    return result_of(ParseDict(task, pb.Task(), ignore_unknown_fields=True), is_everloop=True)
