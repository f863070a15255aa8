"""Takes in messages: each starts a task or goes to one."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from a2a.utils.errors import InvalidParamsError
from structlog.contextvars import bind_contextvars

from everloop.agents.agent import Agent
from everloop.agents.errors import UnknownAgentError
from everloop.agents.registry import AgentRegistry
from everloop.gateway.auth.access import RequestLimits
from everloop.gateway.backends import Stores
from everloop.gateway.context import Viewer
from everloop.gateway.errors import (
    AnswerInvalidError,
    MessageChangedError,
    NoWorkerError,
    TaskEndedError,
    TaskFullError,
    TaskTooLargeError,
)
from everloop.gateway.instruments import record_started
from everloop.gateway.operations.answers import Answers
from everloop.gateway.operations.files import InputFiles
from everloop.gateway.operations.repeated import (
    changed,
    check_digest,
    check_repeated,
    digest_of,
    find_repeated,
    may_be_repeated,
    named,
    task_id_of,
)
from everloop.gateway.requests.messages import SendRequest
from everloop.gateway.tasks.large import LargeTasks
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.snapshots import Snapshots
from everloop.gateway.tasks.tasks import Routes, Tasks, submitted_view
from everloop.stores.views.interface import START, Snapshot
from everloop.workflows.contract.messages import (
    AgentMessage,
    DataPart,
    FilePart,
    Part,
    TaskReference,
    TextPart,
    UserMessage,
    text_of,
)
from everloop.workflows.contract.names import (
    context_key,
    derive_context_id,
)
from everloop.workflows.contract.questions import QUESTION, names_question_for_sure
from everloop.workflows.contract.tasks import Artifact, Identity, Route, TaskInput, TaskView

# What became of the tasks that a message refers to (A2A 1.0 §4.1.4, referenceTaskIds), for its model.

MAX_CHARACTERS = 20_000
"""Of one task's results; the rest is cut off, and the text says so."""

NOTHING = "(nothing yet)"
TOO_LARGE = "(its results are too large to be shown here)"


class References:
    """Reads the results of tasks."""

    def __init__(self, snapshots: Snapshots, large: LargeTasks) -> None:
        self._snapshots = snapshots
        self._large = large

    async def read(self, task_ids: Sequence[str], viewer: Viewer) -> tuple[TaskReference, ...]:
        """Return what came of each task as it stands now.

        Raises:
            TaskUnknownError: one is not there for this viewer.
            UnavailableNowError: one is large, and there is no room for it now.
        """
        return tuple([await self._read(task_id, viewer) for task_id in task_ids])

    async def _read(self, task_id: str, viewer: Viewer) -> TaskReference:
        snapshot = await self._snapshots.take(task_id, viewer)
        try:
            with ExitStack() as held:
                view = (await self._large.whole(snapshot, held, history_length=0)).view
                text = _results(view)
        except TaskTooLargeError:
            view, text = snapshot.view, TOO_LARGE
        return TaskReference(task_id=task_id, state=view.status.state, text=text)


def _results(view: TaskView) -> str:
    """Return artifacts as text; of a task without any, its last words."""
    text = "\n\n".join(_describe(artifact) for artifact in view.artifacts)
    if not text and view.status.message:
        text = _joined(view.status.message.parts)
    if len(text) > MAX_CHARACTERS:
        return f"{text[:MAX_CHARACTERS]}\n[{len(text) - MAX_CHARACTERS} more characters were cut off]"
    return text or NOTHING


def _describe(artifact: Artifact) -> str:
    return f"[{artifact.name or artifact.artifact_id}]\n{_joined(artifact.parts)}"


def _joined(parts: Sequence[Part]) -> str:
    return "\n".join(_text(part) for part in parts)


def _text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return json.dumps(part.data, ensure_ascii=False)
        case FilePart():
            where = part.url or (f"artifact {part.stored.artifact_id!r}" if part.stored else "not shown here")
            return f"(file {part.filename or 'without a name'}, {part.media_type}: {where})"


# What is known of the tasks there are.


@dataclass(frozen=True)
class Past:
    """How tasks stand, how they ended, and what became of messages that may have been answered at once."""

    snapshots: Snapshots
    large: LargeTasks
    reconciler: Reconciler
    routes: Routes


AWAITED_BYTES = 16_000
"""A message of this size always gets to a task that waits for its user: it may be what lets the task end."""

MAX_SUMMARY_BYTES = 200
"""Of the line that the Temporal UI shows for a task; Temporal refuses 400 and more."""


@dataclass(frozen=True)
class Admitted:
    """A message that a task works on. `message_id` is what the task calls it.

    `is_answer`: the task waited for it, and may show that for a moment longer.
    """

    snapshot: Snapshot
    message_id: str
    is_answer: bool = False


@dataclass(frozen=True)
class DirectAnswer:
    """A message that was answered at once, without a task."""

    message: AgentMessage
    context_id: str


class Admission:
    """Every message has its effect once, however often it is sent (unless its agent does not deduplicate)."""

    def __init__(
        self, agents: AgentRegistry, tasks: Tasks, stores: Stores, past: Past, limits: RequestLimits
    ) -> None:
        self._agents = agents
        self._tasks = tasks
        self._views = stores.views
        self._answers = Answers(stores.secrets)
        self._snapshots = past.snapshots
        self._reconciler = past.reconciler
        self._references = References(past.snapshots, past.large)
        self._large = past.large
        self._routes = past.routes
        self._files = InputFiles(stores.artifacts)
        self._limits = limits

    async def take_in(
        self, request: SendRequest, viewer: Viewer, identity: Identity | None
    ) -> Admitted | DirectAnswer:
        """Return the task that works on the message, or what answers it.

        Raises:
            TaskUnknownError: the message names a task that is not the owner's.
            TaskEndedError: it names a task that has ended.
            TaskFullError: it names a task that is too large for more.
            AnswerInvalidError: the task waits for an answer, and this is none.
            MessageChangedError: the task has taken in another message of its id.
            InvalidParamsError: it names a task of another context, or a question but no task, or its
                Idempotency-Key is that of another message.
            TooManyRequestsError: the owner has too many open tasks.
        """
        if request.task_id:
            return await self._continue(request, viewer)
        return await self._start(request, viewer, identity)

    async def _start(
        self, request: SendRequest, viewer: Viewer, identity: Identity | None
    ) -> Admitted | DirectAnswer:
        if names_question_for_sure(request.message):  # it may hold a secret
            raise InvalidParamsError(
                f"message.metadata.{QUESTION} names a question, but message.taskId is missing; "
                "give the id of the task that asks"
            )
        owner, agent = viewer.owner, self._agents.find(viewer.agent_id)
        task_id, message = task_id_of(request, owner, agent), named(request, deduplicate=agent.deduplicate)
        context_id = request.context_id or derive_context_id(task_id)
        bind_contextvars(task_id=task_id, context_id=context_id)
        # First what we know ourselves: Temporal forgets an ended task sooner, and would start it anew.
        route = await self._views.route(task_id)
        if route and (answered := _answered(request, route, context_id)):
            return answered
        is_known = await self._views.state(task_id) is not None
        if not is_known:
            task = await self._new_task(request, viewer, message, identity, context_id)
            if answered := await self._begin(request, task_id, task, agent):
                return answered
        else:  # its files may have been lost since
            await self._files.store(request.files, context_key(owner, context_id), task_id)
        snapshot = await self._snapshots.take(task_id, viewer)
        if not (is_known or snapshot.is_whole):  # it has begun with this very message, which need not be read
            return Admitted(snapshot, message.message_id)
        return Admitted(snapshot, await self._repeated(request, snapshot, message) or message.message_id)

    async def _new_task(
        self,
        request: SendRequest,
        viewer: Viewer,
        message: UserMessage,
        identity: Identity | None,
        context_id: str,
    ) -> TaskInput:
        references = await self._references.read(request.references, viewer)
        return TaskInput(
            context_id=context_id,
            owner=viewer.owner,
            agent=self._agents.find(viewer.agent_id).spec,
            message=message.model_copy(update={"references": references}),
            created_at=datetime.now(UTC),
            identity=identity,
            digest=digest_of(request),
        )

    async def _begin(
        self, request: SendRequest, task_id: str, task: TaskInput, agent: Agent
    ) -> DirectAnswer | None:
        """Start a task, unless it was started before; return what answers its message without one."""
        await self._limits.reserve_task(task.owner, task_id)
        await self._files.store(request.files, context_key(task.owner, task.context_id), task_id)
        # The workflow first: a view of a task that does not exist would wait for ever. If we die in between,
        # the client's retry finds the workflow, and its view is restored from there.
        is_new = await self._tasks.start(task_id, task, summary=_summary(agent, task.message))
        if is_new:
            record_started(agent.id)
        if agent.routing == "auto":
            if answered := await self._decided(task_id, task, request):
                await self._limits.release_task(task.owner, task_id)
                return answered
        elif is_new:
            await self._views.create(submitted_view(task_id, task))
        return None

    async def _decided(self, task_id: str, task: TaskInput, request: SendRequest) -> DirectAnswer | None:
        """Return what answers the message at once; None if there is a task, or has to be one."""
        route = await self._routes.decided(task_id)
        if route is None:
            # Whoever ended the workflow gave nobody a decision: the client is owed a task that has failed.
            await self._views.create(submitted_view(task_id, task))
            await self._reconciler.reconcile(task_id)
            return None
        if answered := _answered(request, route, task.context_id):
            await self._views.keep_route(task_id, route)
        return answered

    async def _continue(self, request: SendRequest, viewer: Viewer) -> Admitted:
        snapshot = await self._snapshots.open(request.task_id, viewer)
        view = snapshot.view
        _check_context(request, view)
        message = named(request, deduplicate=self._deduplicates(view.agent_id))
        if known := await self._repeated(request, snapshot, message):
            return Admitted(snapshot, known)
        snapshot = await self._snapshots.revived(snapshot)
        view = snapshot.view
        if view.status.state.is_terminal:
            raise TaskEndedError(
                f"task {view.task_id!r} is {view.status.state} and takes no more messages; "
                "start a new one with a message without taskId"
            )
        if snapshot.position == START:
            # Nobody can tell whether it waits for a secret, which must not be passed on then.
            raise NoWorkerError
        self._check_size(snapshot, message)
        references = await self._references.read(request.references, viewer)
        said = await self._match(view, message.model_copy(update={"references": references}))
        if said is None:
            return Admitted(snapshot, message.message_id)
        message = said
        # After a look at what it may answer: a secret in a file must not be stored.
        await self._files.store(request.files, context_key(view.owner, view.context_id), view.task_id)
        try:
            await self._tasks.add_message(view.task_id, message)
        except TaskEndedError:
            await self._settle(view.task_id)
            snapshot = await self._snapshots.take(view.task_id, viewer)
            known = await self._repeated(request, snapshot, message)
            if known is None:
                raise
            return Admitted(snapshot, known)  # the task had taken it in before it ended
        except MessageChangedError:
            raise changed(request) from None
        snapshot = await self._snapshots.take(view.task_id, viewer)
        waited = bool(message.answers) or view.status.state.is_interrupted
        return Admitted(snapshot, message.message_id, is_answer=waited)

    async def _repeated(self, request: SendRequest, snapshot: Snapshot, message: UserMessage) -> str | None:
        """Return under which id a task has taken this message in before; None: it has not.

        Raises:
            InvalidParamsError, MessageChangedError: another message came under the same id or key.
            UnavailableNowError: the task is large, and there is no room for it now.
        """
        candidate = may_be_repeated(snapshot.message_ids, message, request.key)
        with ExitStack() as held:
            try:
                view = (await self._large.whole(snapshot, held) if candidate else snapshot).view
            except TaskTooLargeError:  # nobody can compare them: it is what it says it is
                return candidate
            check_repeated(request, view, message)
            known = find_repeated(view, message, request.key)
            return known and known.message_id

    def _check_size(self, snapshot: Snapshot, message: UserMessage) -> None:
        """Pass unless the task would get too large; what it waits for it gets, if that is short.

        Raises:
            TaskFullError: it would.
        """
        added, limit = len(message.model_dump_json().encode()), self._views.max_bytes
        is_awaited = snapshot.view.status.state.is_interrupted and added <= AWAITED_BYTES
        if not is_awaited and snapshot.size + added > limit:
            raise TaskFullError(snapshot.view.task_id, snapshot.size, limit)

    async def _match(self, view: TaskView, message: UserMessage) -> UserMessage | None:
        """Return the message with the question that it answers; None if the task has taken it in before.

        It may have come before the task asked anything, and its client not have heard that it was taken in.
        """
        try:
            return await self._answers.take_in(view, message)
        except AnswerInvalidError:
            if await self._tasks.has_taken_in(view.task_id, message):
                return None
            raise

    async def _settle(self, task_id: str) -> None:
        await self._answers.forget(task_id)
        await self._reconciler.reconcile(task_id)

    def _deduplicates(self, agent_id: str) -> bool:
        try:
            return self._agents.find(agent_id).deduplicate
        except UnknownAgentError:
            return True


def _answered(request: SendRequest, route: Route, context_id: str) -> DirectAnswer | None:
    """Return what answered the message at once, which may have come before; None if it has a task.

    Raises:
        InvalidParamsError: the key of the request came with another message.
    """
    check_digest(request, route.digest)
    return DirectAnswer(route.message, context_id) if route.message else None


def _check_context(request: SendRequest, view: TaskView) -> None:
    if request.context_id and request.context_id != view.context_id:
        raise InvalidParamsError(
            f"message.contextId is {request.context_id!r}, but task {view.task_id!r} belongs to context "
            f"{view.context_id!r}; leave contextId out or send that one"
        )


def _summary(agent: Agent, message: UserMessage) -> str:
    has_data = any(isinstance(part, DataPart) for part in message.parts)
    text = " ".join(text_of(message.parts).split()) or ("(data)" if has_data else "(files)")
    line = f"{agent.name}: {text}".encode()
    if len(line) <= MAX_SUMMARY_BYTES:
        return line.decode()
    return line[: MAX_SUMMARY_BYTES - len("…".encode())].decode(errors="ignore") + "…"
