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

from everloop.client.artifacts import ArtifactCalls
from everloop.client.connection import Connection, addresses
from everloop.client.content import QUESTION, Content, Files, Json, Part, data_part, message_of, parts_of
from everloop.client.errors import InvalidError
from everloop.client.events import Done, Event, Result, TaskState, WaitTimeoutError
from everloop.client.extension.approvals import ApprovalCalls
from everloop.client.extension.contexts import ContextCalls
from everloop.client.extension.operators import OperatorCalls
from everloop.client.extension.past import PastCalls
from everloop.client.extension.schedules import ScheduleCalls
from everloop.client.extension.stored import StoredCalls
from everloop.client.fold import TaskFold, result_of
from everloop.client.follow import HISTORY, Following
from everloop.client.http import Credentials, Token, http_client, origin_of


@dataclass(frozen=True)
class AgentInfo:
    """An agent that a server offers."""

    id: str
    """Empty: the only agent of a server that is no Everloop."""
    name: str
    description: str
    url: str
    card_url: str


class Client(
    ArtifactCalls, ApprovalCalls, ContextCalls, OperatorCalls, PastCalls, ScheduleCalls, StoredCalls
):
    """Asks an agent.

    ```python
    async with Client("http://127.0.0.1:8080", agent="weather") as client:
        result = await client.send("How warm is it in Rome?")
        print(result.text)
    ```

    Args:
        url: Of a gateway, of an agent, or of an agent card (it ends with .json).
        agent: The id of one of the gateway's agents; None for its default one.
        api_key: Goes in the header that the card names, X-API-Key if it names none.
        token: A bearer token, or a function that returns the one that is good now; asked for each request.
        cert: The paths of a client certificate and its key, in PEM.
        ca: The path of the certificates to trust, in PEM; None for those of the system.
        hosts: Servers beside that of `url` to which the credentials may be sent, if the card names them.
        headers: Further headers of every request.
        timeout: Seconds for an answer that comes at once. Streams last as long as their task.
        reconnect: Seconds for which a connection that was lost is tried again, counted from the loss.

    Raises:
        InvalidError: the url is none, or a certificate cannot be read.
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
        self._connection = Connection(card_urls, http, credentials)
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
        """Return the card of the agent, as the SDK has it."""
        return await self._connection.card()

    async def agents(self) -> list[AgentInfo]:
        """Return the agents of the gateway; of a server that is no Everloop the one of its card."""
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
        timeout: float | None = None,  # noqa: ASYNC109 -- the task goes on, and what is known of it is told
    ) -> Result:
        """Send a message, and return what came of it: the end of the task, or what it asks.

        Args:
            content: Texts and parts.
            context_id: The conversation that it belongs to; empty begins one.
            task_id: The task that it goes to; empty begins one.
            question_id: The question of the task that it answers; empty: the oldest one, if it waits.
            files: Paths of files that go with it, or parts.
            data: A JSON value that goes with it.
            metadata: Of the message.
            message_id: Names the message: with the same one it counts once, however often it is sent. Empty:
                a new one.
            detach: Return as soon as the task is there.
            timeout: Seconds to wait; None for as long as it takes. The task goes on.

        Raises:
            WaitTimeoutError: the time is up.
            ClientError: the server refuses, or could not be reached for too long.
        """
        ids = {"context_id": context_id, "task_id": task_id, "message_id": message_id}
        following = await self._following(await parts_of(content, files, data), metadata, question_id, ids)
        result: Result | None = None
        try:
            async with asyncio.timeout(timeout), aclosing(following.events()) as events:
                async for event in events:
                    if isinstance(event, Done) or (detach and event.task_id):
                        result = event.result if isinstance(event, Done) else following.fold.result()
                        break
        except TimeoutError:
            known = following.fold.result()
            raise WaitTimeoutError(
                f"task {known.id} is {known.state} after {timeout} s, and goes on; follow it with watch()",
                known,
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
        """Send a message, and yield what happens; `Done` is the last event. Arguments are those of `send`.

        A connection that is lost is made again: nothing is lost, and nothing comes twice.

        Raises:
            ClientError: the server refuses, or could not be reached for too long.
        """
        ids = {"context_id": context_id, "task_id": task_id, "message_id": message_id}
        following = await self._following(await parts_of(content, files, data), metadata, question_id, ids)
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
        """Answer a question of a task, and return what came of it.

        Args:
            task_id: The task that waits.
            value: A text, or any other JSON value; what fits is told by `Question.kind` and its schema.
            question_id: Empty: the oldest question. A secret needs it.
            message_id: As of `send`.
            detach: As of `send`.
            timeout: As of `send`.

        Raises:
            InvalidError: it is no answer to the question; the message says what is expected.
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
        """Say yes or no to a call that waits for it, and return what came of it; a no rejects any question.

        Questions that ask others than the owner are answered with `decide`.

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
        """Yield what happens in a task until it has ended, also while it waits; `Done` is the last event.

        Args:
            task_id: The task; of one that has ended, what it is.
            after: The `event_id` behind which to go on; empty begins with the task as it stands.

        Raises:
            NotFoundError: there is no such task.
            ClientError: the server refuses, or could not be reached for too long.
        """
        fold = TaskFold(is_everloop=await self._connection.is_everloop(), is_partial=bool(after))
        following = Following(self._connection, fold, reconnect=self._reconnect, task_id=task_id, after=after)
        async with aclosing(following.events()) as events:
            async for event in events:
                yield event

    async def task(self, task_id: str) -> Result:
        """Return a task as it stands.

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
            limit: So many at most; None for all.

        Raises:
            InvalidError: there is no such state.
        """
        request = pb.ListTasksRequest(context_id=context_id, history_length=0, status=_state(state))
        is_everloop = await self._connection.is_everloop()
        async with aclosing(self._connection.list_tasks(request, limit)) as tasks:
            async for task in tasks:
                yield result_of(task, is_everloop=is_everloop)

    async def cancel(self, task_id: str) -> Result:
        """Cancel a task, and return it; repeating it is no error.

        Raises:
            NotFoundError: there is no such task.
            UnsupportedError: it has ended in another way.
        """
        task = await self._connection.cancel_task(task_id)
        return result_of(task, is_everloop=await self._connection.is_everloop())

    async def _following(
        self,
        parts: Sequence[Part],
        metadata: Mapping[str, Json] | None,
        question_id: str,
        ids: Mapping[str, str],
    ) -> Following:
        """Return what follows a message; `ids` are those of context, task and message."""
        about = {**(metadata or {}), **({QUESTION: question_id} if question_id else {})}
        message = message_of(parts, about, **ids)
        awaited = message.message_id if message.task_id else ""
        fold = TaskFold(is_everloop=await self._connection.is_everloop(), awaited=awaited)
        request = pb.SendMessageRequest(message=message)
        return Following(self._connection, fold, reconnect=self._reconnect, request=request)


def _state(state: TaskState | str | None) -> pb.TaskState | None:
    try:
        name = f"TASK_STATE_{TaskState(state).name}" if state else ""
        return cast("pb.TaskState", pb.TaskState.Value(name)) if name else None
    except ValueError:
        known = ", ".join(TaskState)
        raise InvalidError(f"there is no state {state!r}; there are {known}") from None
