"""A task of a peer: started once, followed to its end across broken connections."""

import asyncio
import hashlib
import json
import random
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import structlog
from a2a.types import a2a_pb2 as pb
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_base,
    retry_if_exception,
    retry_if_exception_type,
    stop_before_delay,
)

from everloop.agents.errors import QuestionDefinitionError
from everloop.agents.peer.answers import value_of, value_part, words_of
from everloop.agents.peer.connection import Connection
from everloop.agents.peer.definition import Peer
from everloop.agents.peer.errors import (
    PeerAwayError,
    PeerError,
    PeerForgotError,
    PeerRefusedError,
    PeerUnableError,
    excerpt,
)
from everloop.agents.questions import AuthRequired, InputKind, InputRequired, QuestionRequired
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.questions import Answer, QuestionKind

# Questions of a peer to our own user, and the answers to the peer.

AUTH_REQUIRED = pb.TaskState.TASK_STATE_AUTH_REQUIRED
INPUT_REQUIRED = pb.TaskState.TASK_STATE_INPUT_REQUIRED

_SCHEMA: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
_OPTIONS: TypeAdapter[list[str]] = TypeAdapter(list[str])
_KIND: TypeAdapter[InputKind] = TypeAdapter(InputKind)


def question_of(
    status: pb.TaskStatus, secret_name: str, hide: Callable[[str], str], problem: str = ""
) -> QuestionRequired:
    """Return the question of a waiting status; of several, the first.

    `problem` precedes it, and `hide` redacts secrets. A requested secret is stored as `secret_name`.
    """
    asked = _described(status)
    text = str(asked.get("text") or words_of(status.message) or _wordless(status))
    text = hide(f"{problem}\n\n{text}" if problem else text)
    is_secret = asked.get("kind") == "auth" if asked else status.state == AUTH_REQUIRED
    return AuthRequired(text, secret_name) if is_secret else _input(text, asked)


async def answer_parts(status: pb.TaskStatus, answer: Answer, call: ToolContext) -> tuple[list[pb.Part], str]:
    """Return the answer as parts, and the id of the peer's question that it answers (empty: unknown)."""
    question_id = str(_described(status).get("id") or "")
    if answer.secret_name:
        return [value_part(await call.secret(answer.secret_name))], question_id
    if answer.kind is not QuestionKind.CONFIRMATION:
        return [value_part(answer.value)], question_id
    if question_id:
        return [value_part({"approved": bool(answer.value), "note": answer.note})], question_id
    said = "yes" if answer.value else "no"
    return [value_part(f"{said}, {answer.note}" if answer.note else said)], ""


def fingerprint(status: pb.TaskStatus) -> str:
    """Return the identity of one occurrence of a question: its time.

    The message may have moved to the history when an answer came.
    """
    return str(status.timestamp.ToNanoseconds()) if status.HasField("timestamp") else meaning(status)


def meaning(status: pb.TaskStatus) -> str:
    """Return the identity of a question, the same for each occurrence and beside other questions."""
    if asked := _described(status):
        said = json.dumps(asked, sort_keys=True).encode()
    else:
        said = pb.Message(parts=status.message.parts).SerializeToString(deterministic=True)
    return hashlib.sha256(said).hexdigest()[:16]


def _input(text: str, asked: Mapping[str, JsonValue]) -> InputRequired:
    """Return the question of the peer if valid, or else one that accepts any answer."""
    try:
        kind = _KIND.validate_python(asked.get("kind"))
        schema = _SCHEMA.validate_python(asked.get("json_schema") or {}) if kind == "data" else None
        options = _OPTIONS.validate_python(asked.get("options") or []) if kind == "selection" else ()
        return InputRequired(text, kind, options=options, schema=schema)
    except (ValidationError, QuestionDefinitionError):
        return InputRequired(text)


def _described(status: pb.TaskStatus) -> Mapping[str, JsonValue]:
    """Return the data of an Everloop's first open question; of other agents, nothing."""
    for part in status.message.parts:
        data = value_of(part) if part.HasField("data") else None
        questions = data.get("questions") if isinstance(data, dict) else None
        if isinstance(questions, list) and questions and isinstance(questions[0], dict):
            return questions[0]
    return {}


def _wordless(status: pb.TaskStatus) -> str:
    wanted = "a secret" if status.state == AUTH_REQUIRED else "an answer"
    return f"The agent that was asked wants {wanted}, and does not say what for."


# Progress of an attempt, stored for the next one.

_NAMESPACE = uuid.UUID("0d5c1c9b-6a55-5e06-8f0b-0b6c7f1d7a52")


class Kept(BaseModel):
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

    def with_(self, **changes: str | int) -> "Kept":
        """Return a copy with changes."""
        return self.model_copy(update=changes)


def read_kept(value: JsonValue) -> Kept:
    """Return the stored progress; that of another version of this module is ignored."""
    try:
        return Kept.model_validate(value or {})
    except ValidationError:
        return Kept()


def id_of(peer: Peer, call: ToolContext, answers: int = 0) -> str:
    """Return the id of the request, or of the answer with this number: the same for every attempt."""
    return str(uuid.uuid5(_NAMESPACE, f"{peer.card_url}\x1f{call.idempotency_key}\x1f{answers}"))


def answers_for(peer: Peer, call: ToolContext) -> list[Answer]:
    """Return the user's answers for the peer; a token is sent with the requests instead."""
    return [answer for answer in call.answers if not peer.token or answer.secret_name != peer.token]


Hide = Callable[[str], str]
"""Redacts secrets in a text."""

OVER = frozenset(
    {
        pb.TaskState.TASK_STATE_COMPLETED,
        pb.TaskState.TASK_STATE_FAILED,
        pb.TaskState.TASK_STATE_CANCELED,
        pb.TaskState.TASK_STATE_REJECTED,
    }
)
ASKING = frozenset({AUTH_REQUIRED, INPUT_REQUIRED})

CANCEL_TIME = 5.0
"""Timeout in seconds for cancelling a peer's task."""

HISTORY = 20
"""Maximum messages of a task that are inspected."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
"""Seconds before a retry; they double."""

MOST_DOUBLINGS = 10

REPORTED_PAUSE = 1.0
"""Minimum seconds of a pause that is reported to users; shorter ones end before the report is read."""

_log = structlog.get_logger()


class PeerTask:
    """The peer's task for one call of the tool."""

    def __init__(
        self, connection: Connection, call: ToolContext, kept: Kept, seconds: float, hide: Hide
    ) -> None:
        self.kept = kept
        self._connection = connection
        self._call = call
        self._end = asyncio.get_running_loop().time() + seconds
        self._pauses = 0
        self._hide = hide
        self._has_stopped = False
        self._published = ""
        self._can_subscribe = True
        self._seen = pb.Task()

    async def send(self, message: pb.Message, taken: Kept, *, repeatable: bool = True) -> pb.Message | None:
        """Send a message until the peer has accepted it, and store `taken` then.

        Return its answer if it is a message instead of a task. Its work is followed as long as the
        connection lasts. Without `repeatable`, a message that may have arrived is not sent again.
        """
        request = pb.SendMessageRequest(message=message)

        async def send() -> pb.Message | None:
            return await self._read(self._connection.send(request), taken)

        def may_repeat(error: BaseException) -> bool:
            return isinstance(error, PeerAwayError) and (repeatable or error.is_unsent)

        try:
            return await self._retrying(retry_if_exception(may_repeat))(send)
        except PeerAwayError as away:
            if may_repeat(away):
                raise
            problem = f"the connection broke; nobody knows whether it has taken the request ({away})"
            raise PeerError(problem) from None

    async def follow(self) -> pb.Task:
        """Return the task when it is over, or waits for an answer."""
        while True:
            task = await self._get()
            if self._is_stopped(task.status):
                return task
            await self._report_progress(task.status)
            if not await self._subscribe():
                await asyncio.sleep(self._pause())

    async def cancel(self) -> None:
        """Cancel the peer's task. The peer may be away, or done."""
        if not self.kept.task:
            return
        try:
            async with asyncio.timeout(CANCEL_TIME):
                await self._connection.cancel_task(self.kept.task)
        except (PeerError, TimeoutError) as error:
            _log.warning("peer task not canceled", error_type=type(error).__name__)

    async def keep(self, kept: Kept) -> None:
        """Store the progress for the next attempt.

        If the store fails, this attempt goes on: its running task should not be abandoned.
        """
        self.kept = kept
        try:
            await self._call.keep(kept.model_dump())
        except Exception as error:  # noqa: BLE001 -- any error of the store
            _log.warning("peer task not kept", error_type=type(error).__name__)

    def _retrying(self, retry: retry_base) -> AsyncRetrying:
        """Return retries that end, with the last error, before the call times out."""
        left = self._end - asyncio.get_running_loop().time()
        return AsyncRetrying(
            retry=retry,
            wait=self._pause,
            stop=stop_before_delay(left),
            before_sleep=self._report_pause,
            reraise=True,
        )

    def _pause(self, state: RetryCallState | None = None) -> float:
        """Return the seconds until the next attempt: longer each time, and at least the peer's delay."""
        pause = min(FIRST_PAUSE * 2**self._pauses, LONGEST_PAUSE)
        self._pauses = min(self._pauses + 1, MOST_DOUBLINGS)
        error = state.outcome.exception() if state and state.outcome else None
        wanted = error.wait if isinstance(error, PeerAwayError) else 0.0
        return max(pause * random.uniform(0.8, 1.2), wanted)  # noqa: S311 -- it spreads load, it guards nothing

    async def _get(self) -> pb.Task:
        retrying = self._retrying(retry_if_exception_type(PeerAwayError))
        try:
            return await retrying(self._connection.get_task, self.kept.task, HISTORY)
        except PeerRefusedError as refusal:
            # It deletes completed tasks, or cannot return tasks at all: then the streamed state is the task.
            if self._seen.status.state in OVER | ASKING:
                self._seen.id = self.kept.task
                return self._seen
            if isinstance(refusal, PeerForgotError):
                raise PeerRefusedError("it does not know its task any more; ask it again") from None
            raise

    async def _subscribe(self) -> bool:
        """Follow the task as long as the connection lasts; return whether it has stopped."""
        if not self._can_subscribe or not await self._connection.streams():
            return False
        try:
            await self._read(self._connection.subscribe(self.kept.task), self.kept)
        except PeerAwayError:
            return False
        except (PeerUnableError, PeerForgotError):
            # Not supported, or the task is over by now; a request for the task shows which.
            self._can_subscribe = False
            return False
        return self._has_stopped

    async def _read(self, stream: AsyncGenerator[pb.StreamResponse], taken: Kept) -> pb.Message | None:
        """Follow a stream until the task has stopped, the stream ends or, once it has begun, breaks."""
        is_taken = self._has_stopped = False
        async with aclosing(stream) as responses:
            try:
                async for response in responses:
                    if response.HasField("message"):
                        return response.message
                    if not is_taken:
                        is_taken = True
                        await self._begin(response, taken)
                    self._has_stopped = await self._take_in(response)
                    if self._has_stopped:
                        break
            except PeerAwayError:
                if not is_taken:
                    raise
        if not is_taken:
            raise PeerAwayError("it ended the connection without an answer")
        return None

    async def _begin(self, response: pb.StreamResponse, taken: Kept) -> None:
        task_id, context_id = _ids(response)
        if not task_id:
            raise PeerRefusedError("what it answers is no A2A (an event of no task)")
        self._pauses = 0  # a message has arrived
        known = taken.with_(task=task_id, context=context_id or taken.context)
        if known != self.kept:
            await self.keep(known)

    async def _take_in(self, response: pb.StreamResponse) -> bool:
        """Fold an event in (A2A 1.0 §4.2.2), and report its progress.

        Return whether the task is then over, or waits for an answer.
        """
        match response.WhichOneof("payload"):
            case "task":
                self._seen.CopyFrom(response.task)
            case "status_update":
                self._seen.status.CopyFrom(response.status_update.status)
            case "artifact_update":
                _fold(self._seen, response.artifact_update)
                return False
            case _:
                return False
        await self._report_progress(self._seen.status)
        return self._is_stopped(self._seen.status)

    def _is_stopped(self, status: pb.TaskStatus) -> bool:
        is_asking = status.state in ASKING
        if is_asking and fingerprint(status) == self.kept.answered:
            return False  # it has not processed the answer yet
        if self.kept.answered and status.state:
            self.kept = self.kept.with_(answered="")
        return is_asking or status.state in OVER

    async def _report_progress(self, status: pb.TaskStatus) -> None:
        """Report the progress of the peer, once."""
        if status.state == pb.TaskState.TASK_STATE_WORKING:
            await self._say(words_of(status.message))

    async def _report_pause(self, state: RetryCallState) -> None:
        """Report the reason for a pause, once."""
        if state.outcome and state.upcoming_sleep >= REPORTED_PAUSE:
            await self._say(f"it does not answer now ({state.outcome.exception()}), and is asked again")

    async def _say(self, text: str) -> None:
        said = self._hide(excerpt(text))
        if said and said != self._published:
            self._published = said
            await self._call.progress(said)


def _ids(response: pb.StreamResponse) -> tuple[str, str]:
    if response.HasField("task"):
        return response.task.id, response.task.context_id
    update = response.artifact_update if response.HasField("artifact_update") else response.status_update
    return update.task_id, update.context_id


def _fold(task: pb.Task, update: pb.TaskArtifactUpdateEvent) -> None:
    known = next((one for one in task.artifacts if one.artifact_id == update.artifact.artifact_id), None)
    if known is None:
        task.artifacts.append(update.artifact)
    elif update.append:
        known.parts.extend(update.artifact.parts)
    else:
        known.CopyFrom(update.artifact)
