"""Admission of messages: each starts a task or continues one."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from a2a.utils.errors import InvalidParamsError
from structlog.contextvars import bind_contextvars

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import RequestLimits
from everloop.gateway.context import Viewer
from everloop.gateway.errors import (
    AnswerInvalidError,
    MessageChangedError,
    NoWorkerError,
    TaskEndedError,
    TaskFullError,
    TaskTooLargeError,
)
from everloop.gateway.gateway_instruments import tasks_started
from everloop.gateway.operations.input_files import InputFiles
from everloop.gateway.operations.question_answers import Answers
from everloop.gateway.requests.incoming_messages import IncomingMessage
from everloop.gateway.requests.incoming_parts import size_of
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.snapshots import SMALL_BYTES, Snapshots, refuse_if_read_only
from everloop.gateway.tasks.task_workflows import Tasks, submitted_view
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, Snapshot
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import (
    AgentMessage,
    DataPart,
    FilePart,
    Part,
    TaskReference,
    UserMessage,
    part_text,
    text_of,
)
from everloop.workflows.contract.names import context_key, derive_context_id
from everloop.workflows.contract.parts import cut_bytes, cut_for_model
from everloop.workflows.contract.questions import QUESTION, names_question_for_sure
from everloop.workflows.contract.tasks import AgentSpec, Fork, Identity, Route, TaskInput, TaskView

AWAITED_BYTES = 16_000
"""Messages of up to this size are always admitted to an interrupted task, which may need one to end."""

AS_IT_IS: Mapping[str, object] = {}
"""Changes to the input of a new task: by default none beyond its message and agent."""

MAX_SUMMARY_BYTES = 200
"""Maximum bytes of a task's line in the Temporal UI. Temporal rejects 400 and more."""


@dataclass(frozen=True)
class Admitted:
    """Message admitted to a task. `message_id` is its id within the task.

    `is_answer`: the task was interrupted and waited for the message. Its view may still show that for a
    moment.
    """

    snapshot: Snapshot
    message_id: str
    is_answer: bool = False


@dataclass(frozen=True)
class DirectAnswer:
    """Direct answer to a message, without a task."""

    message: AgentMessage
    context_id: str


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Admits each message once, however often it is sent, unless its agent does not deduplicate."""

    views: TaskViews
    tasks: Tasks
    snapshots: Snapshots
    reconciler: Reconciler
    answers: Answers
    files: InputFiles
    limits: RequestLimits

    async def take_in(
        self, incoming: IncomingMessage, viewer: Viewer, identity: Identity | None
    ) -> Admitted | DirectAnswer:
        """Return the task that processes the message, or its direct answer.

        Raises:
            TaskUnknownError: the message names a task that is not the owner's.
            TaskReadOnlyError: it names the task of a sub-agent.
            TaskEndedError: it names a task that has ended.
            TaskFullError: it names a task that is too large for more.
            TaskBusyError: it names a task with too many unread messages.
            AnswerInvalidError: the task waits for an answer, and the message does not answer it.
            MessageChangedError: the task has admitted another message of this id.
            KeyReusedError: the Idempotency-Key was used with another message.
            InvalidParamsError: it names a task of another context, or a question but no task.
            TooManyRequestsError: the owner has too many open tasks.
        """
        if incoming.is_new:
            return await self._start(incoming, viewer, identity)
        return await self._continue(incoming, viewer)

    async def fork(
        self, incoming: IncomingMessage, identity: Identity | None, spec: AgentSpec, fork: Fork
    ) -> Admitted:
        """Start a task from the history of another, unless it exists. Never answers directly.

        Raises:
            the errors of `take_in` for a message that starts a task.
        """
        viewer = Viewer(incoming.owner, incoming.agent.id)
        admitted = await self._start(incoming, viewer, identity, {"agent": spec, "fork": fork})
        return cast("Admitted", admitted)  # an agent without routing never answers directly

    async def _start(
        self,
        incoming: IncomingMessage,
        viewer: Viewer,
        identity: Identity | None,
        changes: Mapping[str, object] = AS_IT_IS,
    ) -> Admitted | DirectAnswer:
        if names_question_for_sure(incoming.message):  # may hold a secret
            raise InvalidParamsError(
                f"message.metadata.{QUESTION} names a question, but message.taskId is missing; "
                "give the id of the task that asks"
            )
        task_id, message_id = incoming.task_id, incoming.message.message_id
        context_id = incoming.context_id or derive_context_id(task_id)
        bind_contextvars(task_id=task_id, context_id=context_id)
        # Our own stores first: Temporal forgets an ended task sooner, and would start it again.
        route, stored = await self.views.find(task_id, most=SMALL_BYTES)
        if route and (answered := _answered(incoming, route, context_id)):
            return answered
        begun: DirectAnswer | Snapshot | None = stored
        if stored is None:
            references = await self._references(incoming, viewer)
            task = TaskInput(
                context_id=context_id,
                owner=viewer.owner,
                agent=incoming.agent.spec,
                message=incoming.message.model_copy(update={"references": references}),
                created_at=datetime.now(UTC),
                identity=identity,
                digest=incoming.digest,
            ).model_copy(update=changes)
            begun = await self._begin(incoming, task)
            if isinstance(begun, DirectAnswer):
                return begun
        else:  # its files may have been lost since
            await self.files.store(incoming.files, context_key(viewer.owner, context_id), task_id)
        snapshot = await self.snapshots.take(task_id, viewer, stored=begun)
        if not (stored or snapshot.is_complete):  # it started with this very message: no need to read it
            return Admitted(snapshot, message_id)
        return Admitted(snapshot, await self._repeated(incoming, snapshot) or message_id)

    async def _begin(self, incoming: IncomingMessage, task: TaskInput) -> DirectAnswer | Snapshot | None:
        """Start a task. Return the started task, or a direct answer to its message.

        None if the task was started before.
        """
        task_id, agent = incoming.task_id, incoming.agent
        await self.limits.reserve_task(task.owner, task_id)
        try:
            await self.files.store(incoming.files, context_key(task.owner, task.context_id), task_id)
        except Exception:
            await self.limits.release_task(task.owner, task_id)
            raise
        # The workflow first: a view without a workflow would wait forever. After a crash in between, the
        # client's retry finds the workflow and restores the view from it.
        is_new = await self.tasks.start(task_id, task, summary=_summary(agent, task.message))
        if is_new:
            tasks_started.add(1, {"agent": agent.id})
        if task.agent.routing == "auto":
            if answered := await self._decided(incoming, task):
                await self.limits.release_task(task.owner, task_id)
                return answered
        elif is_new:
            return await self.views.begin(submitted_view(task_id, task), most=SMALL_BYTES)
        return None

    async def _decided(self, incoming: IncomingMessage, task: TaskInput) -> DirectAnswer | None:
        """Return the direct answer to a message; None if a task was decided on, or is required."""
        route = await self.tasks.wait_for_route(incoming.task_id)
        if route is None:
            # The workflow was ended from outside, without a decision: the client gets a failed task.
            await self.views.create(submitted_view(incoming.task_id, task))
            await self.reconciler.reconcile(incoming.task_id)
            return None
        if answered := _answered(incoming, route, task.context_id):
            await self.views.note_answer(submitted_view(incoming.task_id, task))
            await self.views.keep_route(incoming.task_id, route)
        return answered

    async def _continue(self, incoming: IncomingMessage, viewer: Viewer) -> Admitted:
        snapshot = await self.snapshots.open(incoming.task_id, viewer)
        refuse_if_read_only(incoming.task_id)
        _check_context(incoming, snapshot.view)
        if repeated := await self._repeated(incoming, snapshot):
            return Admitted(snapshot, repeated)
        snapshot = await self.snapshots.revived(snapshot)
        view = snapshot.view
        if view.status.state.is_terminal:
            raise TaskEndedError(
                f"task {view.task_id!r} is {view.status.state} and takes no more messages; "
                "start a new one with a message without taskId"
            )
        if snapshot.position == START:
            # The task may be waiting for a secret, which must not be forwarded unchecked.
            raise NoWorkerError
        self._check_size(snapshot, incoming.message)
        references = await self._references(incoming, viewer)
        message = await self._match(view, incoming.message.model_copy(update={"references": references}))
        if message is None:
            return Admitted(snapshot, incoming.message.message_id)
        # Only after matching it with its question: a secret in a file must not be stored.
        await self.files.store(incoming.files, context_key(view.owner, view.context_id), view.task_id)
        try:
            await self.tasks.add_message(view.task_id, message.model_copy(update={"size": size_of(message)}))
        except TaskEndedError:
            await self.answers.forget(view.task_id)
            await self.reconciler.reconcile(view.task_id)
            snapshot = await self.snapshots.take(view.task_id, viewer)
            repeated = await self._repeated(incoming, snapshot)
            if repeated is None:
                raise
            return Admitted(snapshot, repeated)  # the task had admitted it before it ended
        except MessageChangedError:
            raise incoming.changed() from None
        snapshot = await self.snapshots.take(view.task_id, viewer)
        waited = bool(message.answers) or view.status.state.is_interrupted
        return Admitted(snapshot, message.message_id, is_answer=waited)

    async def _repeated(self, incoming: IncomingMessage, snapshot: Snapshot) -> str | None:
        """Return the id under which a task has admitted this message before, or None.

        Raises:
            KeyReusedError, MessageChangedError: the key or id was used with another message.
            UnavailableNowError: the task is large, and there is no room for it now.
        """
        candidate = incoming.find_candidate(snapshot.message_ids)
        with ExitStack() as held:
            try:
                view = (await self.snapshots.complete(snapshot, held) if candidate else snapshot).view
            except TaskTooLargeError:  # too large to compare: trust the id
                return candidate
            return incoming.find_repeated(view)

    def _check_size(self, snapshot: Snapshot, message: UserMessage) -> None:
        """Check that the task stays below its limit. Short messages to an interrupted task always pass.

        Raises:
            TaskFullError: the task would exceed its limit.
        """
        added, limit = len(message.model_dump_json().encode()), self.views.max_bytes
        is_awaited = snapshot.view.status.state.is_interrupted and added <= AWAITED_BYTES
        if not is_awaited and snapshot.size + added > limit:
            raise TaskFullError(snapshot.view.task_id, snapshot.size, limit)

    async def _match(self, view: TaskView, message: UserMessage) -> UserMessage | None:
        """Return the message with the question that it answers; None if it was admitted before.

        A retried message may have been admitted before the task asked a question.
        """
        try:
            return await self.answers.take_in(view, message)
        except AnswerInvalidError:
            if await self.tasks.has_taken_in(view.task_id, message):
                return None
            raise

    async def _references(self, incoming: IncomingMessage, viewer: Viewer) -> tuple[TaskReference, ...]:
        """Return the results of each task that the message refers to (A2A 1.0 §4.1.4), for its model.

        Raises:
            TaskUnknownError: a task does not exist for this viewer.
            UnavailableNowError: a task is large, and there is no room for it now.
        """
        return tuple([await self._reference(task_id, viewer) for task_id in incoming.references])

    async def _reference(self, task_id: str, viewer: Viewer) -> TaskReference:
        snapshot = await self.snapshots.take(task_id, viewer)
        try:
            with ExitStack() as held:
                view = (await self.snapshots.complete(snapshot, held, history_length=0)).view
                text, answer = _results(view)
        except TaskTooLargeError:
            view, text, answer = snapshot.view, TOO_LARGE, ""
        return TaskReference(task_id=task_id, state=view.status.state, text=text, answer=answer)


def _answered(incoming: IncomingMessage, route: Route, context_id: str) -> DirectAnswer | None:
    """Return the direct answer to the message, which may be an earlier one; None if it has a task.

    Raises:
        KeyReusedError: the key of the request was used with another message.
    """
    incoming.check_digest(route.digest)
    return DirectAnswer(route.message, context_id) if route.message else None


def _check_context(incoming: IncomingMessage, view: TaskView) -> None:
    if incoming.context_id and incoming.context_id != view.context_id:
        raise InvalidParamsError(
            f"message.contextId is {incoming.context_id!r}, but task {view.task_id!r} belongs to context "
            f"{view.context_id!r}; leave contextId out or send that one"
        )


def _summary(agent: Agent, message: UserMessage) -> str:
    has_data = any(isinstance(part, DataPart) for part in message.parts)
    text = " ".join(text_of(message.parts).split()) or ("(data)" if has_data else "(files)")
    return cut_bytes(f"{agent.name}: {text}", MAX_SUMMARY_BYTES)


# Results of tasks as text.

MAX_CHARACTERS = 20_000
"""Maximum characters of one task's answer, and of its other results. Longer text is truncated and says so."""

NOTHING = "(nothing yet)"
TOO_LARGE = "(its results are too large to be shown here)"


def _results(view: TaskView) -> tuple[str, str]:
    """Return artifacts as text, and the answer; without either, the last status text."""
    artifacts = {each.artifact_id: each for each in view.artifacts}
    answer = artifacts.pop(RESPONSE_ARTIFACT, None) or (None if artifacts else view.status.message)
    said = "\n\n".join(f"[{each.name or id_}]\n{_joined(each.parts)}" for id_, each in artifacts.items())
    answered = _joined(answer.parts) if answer else ""
    said, answered = (cut_for_model(text, MAX_CHARACTERS) for text in (said, answered))
    return said, answered or ("" if said else NOTHING)


def _joined(parts: Sequence[Part]) -> str:
    return "\n".join(part_text(part, _line_of) for part in parts)


def _line_of(file: FilePart) -> str:
    where = file.url or (f"artifact {file.stored.artifact_id!r}" if file.stored else "not shown here")
    return f"(file {file.filename or 'without a name'}, {file.media_type}: {where})"
