"""One call of a peer's tool."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from a2a.types import a2a_pb2 as pb
from temporalio import activity

from everloop.agents.peer.peer_answers import answer_of, file_parts, import_artifacts, reason_of
from everloop.agents.peer.peer_connection import PeerConnection, connected
from everloop.agents.peer.peer_definition import Peer
from everloop.agents.peer.peer_errors import (
    PeerAwayError,
    PeerCredentialsError,
    PeerError,
    PeerRefusedError,
    PeerTaskError,
    peer_error,
)
from everloop.agents.peer.questions import Hide, answer_parts, fingerprint, meaning, question_of
from everloop.agents.peer.task import CANCEL_TIME, PeerProgress, PeerTask, answers_for, id_of, read_progress
from everloop.agents.question_exceptions import AuthRequired
from everloop.agents.tool_context import ToolContext
from everloop.client.errors import ClientError
from everloop.client.fold import Task
from everloop.client.task_events import TaskState
from everloop.runtime.outbound.policy import HeadersError, headers_for, hide, secret_words
from everloop.runtime.schema_validation import in_schema_thread
from everloop.workflows.contract.questions import QUESTION

TIME_TO_REPORT = 5.0
"""Seconds of the tool's timeout reserved for reporting a silent peer; at most a tenth of it."""

_ENDS = {
    TaskState.FAILED: "failed",
    TaskState.REJECTED: "refused the task",
    TaskState.CANCELED: "canceled the task",
}


async def ask_peer(peer: Peer, call: ToolContext, request: str, context: str, files: Sequence[str]) -> str:
    """Return the answer of a peer.

    Raises:
        QuestionRequired: the peer has a question, or requires authentication.
        PeerError: there is no answer; the message has the reason and the next step.
    """
    headers = await _headers(peer, call)
    hidden = partial(hide, secret_words(headers.values()))
    try:
        try:
            async with connected(peer, headers) as connection:
                return await _PeerCall(peer, connection, call, hidden).run(request, context, files)
        except ClientError as error:
            raise peer_error(error) from None
    except PeerCredentialsError as refusal:
        raise _token_required(peer, call, hidden(str(refusal))) from None
    except PeerTaskError as error:
        raise PeerTaskError(hidden(str(error))) from None
    except PeerError as error:
        peer.card_until = 0.0  # the card may be the cause
        raise _with_advice(peer, error, hidden(str(error))) from None


async def abandon_peer(peer: Peer, call: ToolContext) -> None:
    """Cancel the task of a peer, if it has one, because its answer is no longer needed.

    Raises:
        PeerError: the author's function for the headers failed.
    """
    progress = read_progress(call.kept)
    if progress.task:
        async with connected(peer, await _headers(peer, call)) as connection:
            await PeerTask(connection, call, progress, CANCEL_TIME, str).cancel()


async def _headers(peer: Peer, call: ToolContext) -> dict[str, str]:
    """Return the headers of the agent's author and of the user; names as gRPC requires them.

    Raises:
        PeerError: the author's function failed.
    """
    try:
        made = await headers_for(peer.headers, call.auth)
    except HeadersError as error:
        raise PeerError(f"headers for the agent at {peer.label}: {error}") from None
    headers = {name.lower(): value for name, value in made.items()}
    token = await call.secret(peer.token) if peer.token else None
    if isinstance(token, str) and (bare := token.strip()):
        headers["authorization"] = f"Bearer {bare.removeprefix('Bearer ')}"
    return headers


def _token_required(peer: Peer, call: ToolContext, refusal: str) -> Exception:
    """Return the exception for rejected headers: a question to the user, or an error."""
    if not peer.token:
        return PeerCredentialsError(
            f"the agent at {peer.label} refuses the credentials of this agent ({refusal}); whoever runs this "
            "agent has to give others (headers= or token= of peer)"
        )
    again = any(answer.secret_name == peer.token for answer in call.answers)
    problem = "did not accept the token" if again else "wants to know who asks"
    return AuthRequired(f"The agent at {peer.label} {problem}. Please give a token for it.", peer.token)


class _PeerCall:
    """One attempt at one call. `hide` redacts secrets in a text."""

    def __init__(self, peer: Peer, connection: PeerConnection, call: ToolContext, hide: Hide) -> None:
        self._peer = peer
        self._connection = connection
        self._hide = hide
        self._call = call
        self._answers = answers_for(peer, call)
        seconds = peer.timeout.total_seconds()
        seconds -= min(TIME_TO_REPORT, seconds / 10)
        self._task = PeerTask(connection, call, read_progress(call.kept), seconds, hide)

    async def run(self, request: str, context: str, files: Sequence[str]) -> str:
        """Run the peer's task to its end, or to its next question."""
        try:
            return await self._end(await self._converse(request, context, files))
        except asyncio.CancelledError:
            if not (comes_again() and self._call.is_wanted()):
                await asyncio.shield(asyncio.create_task(self._task.cancel()))
            raise

    async def _start(self, request: str, context: str, files: Sequence[str]) -> Task:
        message = pb.Message(
            message_id=id_of(self._peer, self._call),
            role=pb.Role.ROLE_USER,
            context_id=context,
            parts=[pb.Part(text=request), *await file_parts(self._call, files)],
        )
        return await self._task.send(message, PeerProgress(), repeatable=self._peer.idempotent)

    async def _converse(self, request: str, context: str, files: Sequence[str]) -> Task:
        """Send the peer the request and the missing answers, until its task is over.

        Raises:
            QuestionRequired: it waits for an answer that is not given yet.
        """
        is_begun, problem = bool(self._task.progress.task), ""
        task = await (self._task.follow() if is_begun else self._start(request, context, files))
        while task.state.is_waiting:
            if not self._has_answer(task):
                await self._ask(task, problem)
            try:
                task = await self._answer(task)
            except ClientError as error:
                refusal = peer_error(error)
                if not isinstance(refusal, PeerRefusedError):
                    raise
                # It may have an answer from elsewhere by now; otherwise the user gets the refusal.
                problem = self._hide(str(refusal))
                progress = self._task.progress
                await self._task.keep(progress.with_(sent=progress.sent + 1, sending=""))
                task = await self._task.follow()
        return task

    def _has_answer(self, task: Task) -> bool:
        """Return True if the user has answered the current question of the task, and not an earlier one."""
        progress = self._task.progress
        if progress.sent >= len(self._answers):
            return False
        is_same = progress.asked in {"", meaning(task)} or progress.sending == fingerprint(task)
        return is_same or self._is_sent(task)

    def _is_sent(self, task: Task) -> bool:
        """Return True if the next answer was already sent, by an attempt that was lost."""
        next_id = id_of(self._peer, self._call, self._task.progress.sent + 1)
        return any(message.message_id == next_id for message in task.history)

    async def _ask(self, task: Task, problem: str) -> NoReturn:
        """Ask the user the question of the task; `problem` is the error of the last answer.

        Raises:
            QuestionRequired: always.
        """
        await self._task.keep(self._task.progress.with_(sent=len(self._answers), asked=meaning(task)))
        secret = f"{self._peer.name}.{len(self._call.answers)}"
        raise await in_schema_thread(lambda: question_of(task, secret, self._hide, problem))

    async def _answer(self, task: Task) -> Task:
        """Send the next answer, unless it was sent; its question is stored first, for the next attempt."""
        progress = self._task.progress
        taken = progress.with_(sent=progress.sent + 1, answered=progress.sending, sending="")
        if self._is_sent(task):
            await self._task.keep(taken)
            return await self._task.follow()
        asked, asking = task.questions[0], fingerprint(task)
        await self._task.keep(progress.with_(sending=asking))
        message = pb.Message(
            message_id=id_of(self._peer, self._call, taken.sent),
            role=pb.Role.ROLE_USER,
            task_id=task.id,
            context_id=task.context_id,
            parts=await answer_parts(asked, self._answers[progress.sent], self._call),
        )
        if asked.id:  # names the question to an Everloop
            message.metadata.update({QUESTION: asked.id})
        taken = taken.with_(answered=asking)
        return await self._task.send(message, taken, repeatable=self._peer.idempotent)

    async def _end(self, task: Task) -> str:
        """Return the answer of a task that is over, after importing its artifacts.

        Raises:
            PeerTaskError: the task has no answer.
        """
        if task.state is not TaskState.COMPLETED:
            raise PeerTaskError(f"the agent at {self._peer.label} {_ENDS[task.state]}: {reason_of(task)}")
        imported = await import_artifacts(self._connection, task, self._call, self._peer.name)
        return self._hide(answer_of(task, imported))


def comes_again() -> bool:
    """Return True if only this attempt is cancelled: its worker stops, was considered lost, or is paused.

    Then the peer goes on, and the next attempt finds its task.
    """
    if not activity.in_activity():
        return False
    details = activity.cancellation_details()
    return activity.is_worker_shutdown() or (details is not None and not details.cancel_requested)


def _with_advice(peer: Peer, error: PeerError, said: str) -> PeerError:
    """Return the error with the name of the peer, and the next step."""
    if isinstance(error, PeerAwayError):
        return PeerAwayError(
            f"the agent at {peer.label} does not answer ({said}); try again later, or do without it. Whoever "
            "runs this agent should see whether that address is right and the agent there runs"
        )
    if isinstance(error, PeerRefusedError):
        return PeerRefusedError(f"the agent at {peer.label} did not do it: {said}")
    return PeerError(f"the agent at {peer.label} could not be asked: {said}")
