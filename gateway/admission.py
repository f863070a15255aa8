"""Takes in messages: each starts a task or goes to one."""

import uuid
from datetime import UTC, datetime

from a2a.utils.errors import InvalidParamsError

from agents.agent import Agent
from agents.errors import UnknownAgentError
from agents.registry import AgentRegistry
from gateway.answers import Answers
from gateway.callers import Viewer
from gateway.endings import Endings
from gateway.errors import NoWorkerError, TaskEndedError
from gateway.input_files import InputFiles
from gateway.requests import SendRequest, content_of
from gateway.snapshots import Snapshots
from gateway.stores import Stores
from gateway.tasks import Tasks, submitted_view
from stores.task_views import START, Snapshot
from workflows.contract.messages import DataPart, UserMessage, text_of
from workflows.contract.names import context_key, derive_context_id, derive_task_id
from workflows.contract.questions import QUESTION, WITHHELD, names_question_for_sure
from workflows.contract.tasks import TaskInput, TaskView

MAX_SUMMARY_BYTES = 200
"""Of the line that the Temporal UI shows for a task; Temporal refuses 400 and more."""


class Admission:
    """Every message has its effect once, however often it is sent (unless its agent does not deduplicate)."""

    def __init__(
        self,
        agents: AgentRegistry,
        tasks: Tasks,
        stores: Stores,
        snapshots: Snapshots,
        endings: Endings,
    ) -> None:
        self._agents = agents
        self._tasks = tasks
        self._views = stores.views
        self._answers = Answers(stores.secrets)
        self._snapshots = snapshots
        self._endings = endings
        self._files = InputFiles(stores.artifacts)

    async def take_in(self, request: SendRequest, viewer: Viewer) -> Snapshot:
        """Return a snapshot of the task that works on the message.

        Raises:
            TaskUnknownError: the message names a task that is not the owner's.
            TaskEndedError: it names a task that has ended.
            AnswerInvalidError: the task waits for an answer, and this is none.
            InvalidParamsError: it names a task of another context, or a question but no task.
        """
        if request.task_id:
            return await self._continue(request, viewer)
        return await self._start(request, viewer)

    async def _start(self, request: SendRequest, viewer: Viewer) -> Snapshot:
        if names_question_for_sure(request.message):  # it may hold a secret
            raise InvalidParamsError(
                f"message.metadata.{QUESTION} names a question, but message.taskId is missing; "
                "give the id of the task that asks"
            )
        owner, agent = viewer.owner, self._agents.find(viewer.agent_id)
        task_id = _task_id(request, owner, agent)
        task = TaskInput(
            context_id=request.context_id or derive_context_id(task_id),
            owner=owner,
            agent=agent.spec,
            message=request.message,
            created_at=datetime.now(UTC),
        )
        await self._files.store(request.files, context_key(owner, task.context_id), task_id)
        # The workflow first: a view of a task that does not exist would wait for ever. If we die in between,
        # the client's retry finds the workflow, and its view is restored from there.
        if await self._tasks.start(task_id, task, summary=_summary(agent, request.message)):
            await self._views.create(submitted_view(task_id, task))
        return await self._snapshots.take(task_id, viewer)

    async def _continue(self, request: SendRequest, viewer: Viewer) -> Snapshot:
        snapshot = await self._snapshots.take(request.task_id, viewer)
        view = snapshot.view
        _check_context(request, view)
        deduplicate = self._deduplicates(view.agent_id)
        if _holds(view, request.message, deduplicate=deduplicate):
            return snapshot
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
        message = await self._answers.take_in(view, request.message)
        # After a look at what it may answer: a secret in a file must not be stored.
        await self._files.store(request.files, context_key(view.owner, view.context_id), view.task_id)
        update_id = message.message_id if deduplicate else str(uuid.uuid4())
        try:
            await self._tasks.add_message(view.task_id, message, update_id=update_id)
        except TaskEndedError:
            await self._settle(view.task_id)
            snapshot = await self._snapshots.take(view.task_id, viewer)
            if not _holds(snapshot.view, message, deduplicate=deduplicate):
                raise
            return snapshot  # the task had taken it in before it ended
        return await self._snapshots.take(view.task_id, viewer)

    async def _settle(self, task_id: str) -> None:
        await self._answers.forget(task_id)
        await self._endings.settle(task_id)

    def _deduplicates(self, agent_id: str) -> bool:
        try:
            return self._agents.find(agent_id).deduplicate
        except UnknownAgentError:
            return True


def _task_id(request: SendRequest, owner: str, agent: Agent) -> str:
    if not agent.deduplicate:
        return str(uuid.uuid4())
    content = content_of(request.message, request.context_id)
    return derive_task_id(owner, agent.id, request.message.message_id, content)


def _check_context(request: SendRequest, view: TaskView) -> None:
    if request.context_id and request.context_id != view.context_id:
        raise InvalidParamsError(
            f"message.contextId is {request.context_id!r}, but task {view.task_id!r} belongs to context "
            f"{view.context_id!r}; leave contextId out or send that one"
        )


def _holds(view: TaskView, message: UserMessage, *, deduplicate: bool) -> bool:
    """Whether the task has taken in this very message already: the client is repeating itself.

    What stands in place of a secret cannot be compared; nor is a secret passed on as something else because
    it comes again, whether the agent takes repeated messages or not.
    """
    return any(
        isinstance(known, UserMessage)
        and known.message_id == message.message_id
        and ((deduplicate and known.parts == message.parts) or known.metadata.get(WITHHELD))
        for known in view.history
    )


def _summary(agent: Agent, message: UserMessage) -> str:
    has_data = any(isinstance(part, DataPart) for part in message.parts)
    text = " ".join(text_of(message.parts).split()) or ("(data)" if has_data else "(files)")
    line = f"{agent.name}: {text}".encode()
    if len(line) <= MAX_SUMMARY_BYTES:
        return line.decode()
    return line[: MAX_SUMMARY_BYTES - len("…".encode())].decode(errors="ignore") + "…"
