"""A client of an agent: of an Everloop, or of any other server of A2A 1.0."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from a2a.types import AgentCard
from a2a.types import a2a_pb2 as pb

from everloop.client.artifact_calls import ArtifactCalls
from everloop.client.content import QUESTION, Content, Files, Json, Part, data_part, message_of, parts_of
from everloop.client.errors import InvalidError
from everloop.client.extension.approval_calls import ApprovalCalls
from everloop.client.extension.context_calls import ContextCalls
from everloop.client.extension.history_calls import PastCalls
from everloop.client.extension.operator_calls import OperatorCalls
from everloop.client.extension.schedule_calls import ScheduleCalls
from everloop.client.extension.stored_artifacts import StoredCalls
from everloop.client.fold import Task, result_of
from everloop.client.follow import HISTORY, Backoff, Following
from everloop.client.http import Credentials, Token, http_client, origin_of
from everloop.client.server import Server, addresses
from everloop.client.task_events import Done, Event, Result, TaskState, WaitTimeoutError


@dataclass(frozen=True)
class AgentInfo:
    """An agent of a server."""

    id: str
    """Empty: the only agent of a server that is not an Everloop."""
    name: str
    description: str
    url: str
    card_url: str


class Client(
    ArtifactCalls, ApprovalCalls, ContextCalls, OperatorCalls, PastCalls, ScheduleCalls, StoredCalls
):
    """Client of an agent.

    ```python
    async with Client("http://127.0.0.1:8080", agent="weather") as client:
        result = await client.send("How warm is it in Rome?")
        print(result.text)
    ```

    Args:
        url: Of a gateway, of an agent, or of an agent card (it ends with .json).
        agent: The id of one of the gateway's agents; None for its default one.
        api_key: Sent in the header that the card names, X-API-Key if it names none.
        token: A bearer token, or a function that returns the current one; called for each request.
        cert: The paths of a client certificate and its key, in PEM.
        ca: The path of the certificates to trust, in PEM; None for those of the system.
        hosts: Servers beside that of `url` to which the credentials may be sent, if the card names them.
        headers: Further headers of every request.
        timeout: Seconds for an immediate response. Streams last as long as their task.
        reconnect: Seconds of reconnection attempts, counted from the loss of the connection.

    Raises:
        InvalidError: the url is malformed, or a certificate cannot be read.
    """

    def __init__(  # noqa: PLR0913 -- all have names and defaults
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        agent: str | None = None,
        api_key: str = "",
        token: Token = "",
        cert: tuple[str | Path, str | Path] | None = None,
        ca: str | Path | None = None,
        hosts: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        reconnect: float = 60.0,
    ) -> None:
        card_urls = addresses(url, agent)
        credentials = Credentials(origin_of(url), api_key=api_key, token=token, hosts=hosts)
        http = http_client(credentials, cert=cert, ca=ca, headers=headers or {}, timeout=timeout)
        self._connection = Server(card_urls, http, credentials)
        self._reconnect = reconnect

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Tasks go on."""
        await self._connection.close()

    # Agents.

    async def card(self) -> AgentCard:
        """Return the card of the agent, in the SDK's type."""
        return await self._connection.card()

    async def agents(self) -> list[AgentInfo]:
        """Return the agents of the gateway; of a server that is not an Everloop the one of its card."""
        card = await self._connection.card()
        if not await self._connection.is_everloop():
            url = card.supported_interfaces[0].url if card.supported_interfaces else ""
            return [AgentInfo("", card.name, card.description, url, self._connection.card_url)]
        listed = await self._connection.ask("GET", await self._connection.own("/agents"))
        reachable = self._connection.reachable
        return [
            AgentInfo(
                each["id"], each["name"], each["description"], reachable(each["url"]), reachable(each["card"])
            )
            for each in listed
        ]

    # Messages.

    async def send(  # noqa: PLR0913 -- all have names and defaults
        self,
        *content: Content,
        context_id: str = "",
        task_id: str = "",
        question_id: str = "",
        files: Files = (),
        data: Json = None,
        metadata: Mapping[str, Json] | None = None,
        message_id: str = "",
        detach: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 -- the task goes on; the error has its state
    ) -> Result:
        """Send a message, and return the result: the end of the task, or its questions.

        Args:
            content: Texts and parts.
            context_id: The conversation that it belongs to; empty begins one.
            task_id: The task that it continues; empty begins one.
            question_id: The question of the task that it answers; empty: the oldest one, if the task waits.
            files: Paths of files to attach, or parts.
            data: A JSON value to attach.
            metadata: Of the message.
            message_id: Identifies retries: messages with the same one count once. Empty: a new one.
            detach: Return as soon as the task exists.
            timeout: Seconds to wait; None for no limit. The task goes on.

        Raises:
            WaitTimeoutError: the time is up.
            ClientError: the server rejects it, or could not be reached for too long.
        """
        ids = {"context_id": context_id, "task_id": task_id, "message_id": message_id}
        following = self._following(await parts_of(content, files, data), metadata, question_id, ids)
        result: Result | None = None
        try:
            async with asyncio.timeout(timeout), aclosing(following.events()) as events:
                async for event in events:
                    if isinstance(event, Done) or (detach and event.task_id):
                        result = event.result if isinstance(event, Done) else following.result()
                        break
        except TimeoutError:
            so_far = following.result()
            raise WaitTimeoutError(
                f"task {so_far.id} is {so_far.state} after {timeout} s, and goes on; follow it with watch()",
                so_far,
            ) from None
        assert result  # noqa: S101 -- the last event is Done
        return result

    async def stream(  # noqa: PLR0913 -- all have names and defaults
        self,
        *content: Content,
        context_id: str = "",
        task_id: str = "",
        question_id: str = "",
        files: Files = (),
        data: Json = None,
        metadata: Mapping[str, Json] | None = None,
        message_id: str = "",
    ) -> AsyncGenerator[Event]:
        """Send a message, and yield the events; `Done` is the last one. Arguments are those of `send`.

        A lost connection is made again: no event is lost, and none comes twice.

        Raises:
            ClientError: the server rejects it, or could not be reached for too long.
        """
        ids = {"context_id": context_id, "task_id": task_id, "message_id": message_id}
        following = self._following(await parts_of(content, files, data), metadata, question_id, ids)
        async with aclosing(following.events()) as events:
            async for event in events:
                yield event

    async def answer(  # noqa: PLR0913 -- all have names and defaults
        self,
        task_id: str,
        value: Json,
        *,
        question_id: str = "",
        message_id: str = "",
        detach: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 -- as of send
    ) -> Result:
        """Answer a question of a task, and return the result.

        Args:
            task_id: The task that waits.
            value: A text, or any other JSON value, according to `Question.kind` and its schema.
            question_id: Empty: the oldest question. A secret needs it.
            message_id: As of `send`.
            detach: As of `send`.
            timeout: As of `send`.

        Raises:
            InvalidError: it does not answer the question. The message says what is expected.
            ClientError: as of `send`.
        """
        return await self.send(
            value if isinstance(value, str) else data_part(value),
            task_id=task_id,
            question_id=question_id,
            message_id=message_id,
            detach=detach,
            timeout=timeout,
        )

    async def approve(  # noqa: PLR0913 -- all have names and defaults
        self,
        task_id: str,
        question_id: str = "",
        *,
        approved: bool = True,
        note: str = "",
        detach: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 -- as of send
    ) -> Result:
        """Approve or reject a pending call, and return the result. A rejection is valid for any question.

        Questions for others than the owner are answered with `decide`.

        Raises:
            ClientError: as of `send`.
        """
        if not (question_id or await self._connection.is_everloop()):
            said = "yes" if approved else "no"
            return await self.answer(
                task_id, f"{said}, {note}" if note else said, detach=detach, timeout=timeout
            )
        verdict = {"approved": approved, "note": note}
        return await self.answer(task_id, verdict, question_id=question_id, detach=detach, timeout=timeout)

    # Tasks.

    async def watch(self, task_id: str, *, after: str = "") -> AsyncGenerator[Event]:
        """Yield the events of a task until it has ended, also while it waits; `Done` is the last one.

        Args:
            task_id: The task; of an ended one, its result.
            after: The `event_id` after which to resume; empty begins with the current task.

        Raises:
            NotFoundError: there is no such task.
            ClientError: the server rejects it, or could not be reached for too long.
        """
        following = Following(self._connection, Task(id=task_id), Backoff(self._reconnect), after=after)
        async with aclosing(following.events()) as events:
            async for event in events:
                yield event

    async def task(self, task_id: str) -> Result:
        """Return the current state of a task.

        Raises:
            NotFoundError: there is no such task.
        """
        task = await self._connection.get_task(task_id, HISTORY)
        return result_of(task, is_everloop=await self._connection.is_everloop())

    async def tasks(
        self, *, state: TaskState | str | None = None, context_id: str = "", limit: int | None = None
    ) -> AsyncGenerator[Result]:
        """Yield tasks, the newest first, without their tool calls and artifacts; pages are read as needed.

        Args:
            state: Only those in this state.
            context_id: Only those of this conversation.
            limit: The maximum number; None for all.

        Raises:
            InvalidError: there is no such state.
        """
        request = pb.ListTasksRequest(context_id=context_id, history_length=0, status=_state(state))
        is_everloop = await self._connection.is_everloop()
        async with aclosing(self._connection.list_tasks(request, limit)) as tasks:
            async for task in tasks:
                yield result_of(task, is_everloop=is_everloop)

    async def cancel(self, task_id: str) -> Result:
        """Cancel a task, and return it. Repeating it is not an error.

        Raises:
            NotFoundError: there is no such task.
            UnsupportedError: it has ended in another way.
        """
        task = await self._connection.cancel_task(task_id)
        return result_of(task, is_everloop=await self._connection.is_everloop())

    def _following(
        self,
        parts: Sequence[Part],
        metadata: Mapping[str, Json] | None,
        question_id: str,
        ids: Mapping[str, str],
    ) -> Following:
        """Return the events after a message; `ids` are those of context, task and message."""
        about = {**(metadata or {}), **({QUESTION: question_id} if question_id else {})}
        message = message_of(parts, about, **ids)
        awaited = message.message_id if message.task_id else ""
        request = pb.SendMessageRequest(message=message)
        return Following(self._connection, Task(awaited=awaited), Backoff(self._reconnect), request=request)


def _state(state: TaskState | str | None) -> pb.TaskState | None:
    try:
        name = f"TASK_STATE_{TaskState(state).name}" if state else ""
        return cast("pb.TaskState", pb.TaskState.Value(name)) if name else None
    except ValueError:
        states = ", ".join(TaskState)
        raise InvalidError(f"there is no state {state!r}; there are {states}") from None
