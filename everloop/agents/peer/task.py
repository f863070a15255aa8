"""A task of a peer: started once, followed to its end across broken connections."""

import asyncio
import uuid
from contextlib import aclosing
from dataclasses import replace

import structlog
from a2a.types import a2a_pb2 as pb
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from everloop.agents.peer.peer_connection import PeerConnection
from everloop.agents.peer.peer_definition import Peer
from everloop.agents.peer.peer_errors import PeerError, is_away, is_unsent, text_of_error
from everloop.agents.peer.questions import Hide, fingerprint
from everloop.agents.tool_context import ToolContext
from everloop.client.errors import ClientError, ServerError, excerpt
from everloop.client.fold import Task, fold
from everloop.client.follow import HISTORY, Backoff, Following
from everloop.client.task_events import Event, Reconnecting, StatusChanged, TaskState
from everloop.workflows.contract.questions import Answer

# Progress of an attempt, stored for the next one.

_NAMESPACE = uuid.UUID("0d5c1c9b-6a55-5e06-8f0b-0b6c7f1d7a52")


class PeerProgress(BaseModel):
    """Progress of a call with its peer, stored for the next attempt."""

    model_config = ConfigDict(frozen=True)

    task: str = ""
    """The id of the peer's task, empty before the peer has given it."""
    context: str = ""
    asked: str = ""
    """The last question to the user."""
    sent: int = 0
    """Number of answers that the peer has accepted."""
    answered: str = ""
    """The status of the peer that the last of them answered: as long as it is the same, the peer has not
    processed the answer yet."""
    sending: str = ""
    """The status for an answer that is being sent, and may have been accepted."""

    def with_(self, **changes: str | int) -> "PeerProgress":
        """Return a copy with changes."""
        return self.model_copy(update=changes)


def read_progress(value: JsonValue) -> PeerProgress:
    """Return the stored progress; that of another version of this module is ignored."""
    try:
        return PeerProgress.model_validate(value or {})
    except ValidationError:
        return PeerProgress()


def id_of(peer: Peer, call: ToolContext, answers: int = 0) -> str:
    """Return the id of the request, or of the answer with this number: the same for every attempt."""
    return str(uuid.uuid5(_NAMESPACE, f"{peer.card_url}\x1f{call.idempotency_key}\x1f{answers}"))


def answers_for(peer: Peer, call: ToolContext) -> list[Answer]:
    """Return the user's answers for the peer; a token is sent with the requests instead."""
    return [answer for answer in call.answers if not peer.token or answer.secret_name != peer.token]


CANCEL_TIME = 5.0
"""Timeout in seconds for cancelling a peer's task."""

REPORTED_PAUSE = 1.0
"""Minimum seconds of a pause that is reported to users; shorter ones end before the report is read."""

_log = structlog.get_logger()


class PeerTask:
    """The peer's task for one call of the tool. All methods but `cancel` raise `ClientError`s."""

    def __init__(
        self,
        connection: PeerConnection,
        call: ToolContext,
        progress: PeerProgress,
        seconds: float,
        hide: Hide,
    ) -> None:
        self.progress = progress
        self.connection = connection
        self.backoff = Backoff(seconds, end=asyncio.get_running_loop().time() + seconds)
        self._call = call
        self._hide = hide
        self._published = ""
        self._task = Task(id=progress.task)

    async def send(self, message: pb.Message, taken: PeerProgress, *, repeatable: bool) -> Task:
        """Send a message, and return the task when it is over, or waits for an answer.

        `taken` is stored once the peer has accepted it. Without `repeatable`, a message that may have
        arrived is not sent again.
        """
        unanswered = replace(self._task, status=pb.TaskStatus())
        return await self._followed(_PeerFollowing(self, unanswered, message, taken, repeatable=repeatable))

    async def follow(self) -> Task:
        """Return the task when it is over, or waits for an answer."""
        return await self._followed(_PeerFollowing(self, self._task, None, self.progress, repeatable=True))

    async def _followed(self, following: "_PeerFollowing") -> Task:
        async with aclosing(following.events()) as events:
            async for event in events:
                await self._report(event, following.problem)
        self._task = following.task
        if self._task.id and await self._has_changed():
            return await self.follow()
        return self._task

    async def _has_changed(self) -> bool:
        """Read the task once more, if the peer can return tasks: its streams may lack something.

        Return whether it goes on meanwhile.
        """
        try:
            read = await self.connection.get_task(self._task.id, HISTORY)
        except ClientError:
            return False
        self._task = fold(self._task, pb.StreamResponse(task=read))
        return not self.has_stopped(self._task)

    def has_stopped(self, task: Task) -> bool:
        """Whether the task is over, or waits for an answer that it has not got yet."""
        if not task.state.is_waiting:
            self.progress = self.progress.with_(answered="") if task.status.state else self.progress
            return task.state.is_terminal
        return fingerprint(task) != self.progress.answered

    async def cancel(self) -> None:
        """Cancel the peer's task. The peer may be away, or done."""
        if not self.progress.task:
            return
        try:
            async with asyncio.timeout(CANCEL_TIME):
                await self.connection.cancel_task(self.progress.task)
        except (ClientError, TimeoutError) as error:
            _log.warning("peer task not canceled", error_type=type(error).__name__)

    async def keep(self, progress: PeerProgress) -> None:
        """Store the progress for the next attempt.

        If the store fails, this attempt goes on: its running task should not be abandoned.
        """
        self.progress = progress
        try:
            await self._call.keep(progress.model_dump())
        except Exception as error:  # noqa: BLE001 -- any error of the store
            _log.warning("peer task not kept", error_type=type(error).__name__)

    async def _report(self, event: Event, problem: str) -> None:
        """Report the progress of the peer, or the reason for a pause, once."""
        match event:
            case StatusChanged(state=TaskState.WORKING):
                text = event.text
            case Reconnecting() if event.delay >= REPORTED_PAUSE:
                text = f"it does not answer now ({problem}), and is asked again"
            case _:
                return
        said = self._hide(excerpt(text))
        if said and said != self._published:
            self._published = said
            await self._call.progress(said)


class _PeerFollowing(Following):
    """Follows until the task is over, or waits for an answer, as long as the call has time."""

    def __init__(
        self, peer: PeerTask, task: Task, message: pb.Message | None, taken: PeerProgress, *, repeatable: bool
    ) -> None:
        request = pb.SendMessageRequest(message=message) if message else None
        super().__init__(peer.connection, task, peer.backoff, request=request)
        self.problem = ""
        self._peer = peer
        self._taken = taken
        self._is_repeatable = repeatable
        self._is_kept = False

    def _is_over(self) -> bool:
        return self._peer.has_stopped(self.task)

    async def _received(self) -> None:
        if self._is_kept or (self.task.state.is_terminal and not self.task.id):  # an answer without a task
            return
        if not self.task.id:
            raise ServerError("what it answers is no A2A (an event of no task)")
        self._is_kept = True
        kept = self._taken.with_(task=self.task.id, context=self.task.context_id or self._taken.context)
        if kept != self._peer.progress:
            await self._peer.keep(kept)

    async def _may_retry(self, problem: ClientError) -> bool:
        self.problem = text_of_error(problem)
        if is_away(problem) and self._is_sending and not (self._is_repeatable or is_unsent(problem)):
            raise PeerError(
                f"the connection broke; nobody knows whether it has taken the request ({self.problem})"
            )
        return is_away(problem)

    async def _missed(self, snapshot: pb.Task) -> list[Event]:
        return []  # its tool calls are its own matter
