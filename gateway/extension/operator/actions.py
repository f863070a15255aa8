"""What operators do to a task: each says in words what it did, and one that cannot help is refused."""

from temporalio.client import Client

from everloop.gateway.errors import NoWorkerError, TaskUnknownError, UnavailableError
from everloop.gateway.extension.operator.diagnosis import calls_of, is_idle
from everloop.gateway.extension.operator.overview import Seen
from everloop.gateway.http.errors import ConflictError, NotFoundError
from everloop.gateway.tasks.steering import Signature, Steering
from everloop.gateway.tasks.tasks import Tasks
from everloop.runtime.temporal.inspection import CallState
from everloop.workflows.contract.names import is_child_task_id
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import Approval, Question, SkippedCall
from everloop.workflows.contract.tasks import TaskState


class Actions:
    """Acts on tasks that somebody has looked at just now; each action may be repeated.

    Raises of all methods: ConflictError: it cannot help the task as it stands; the message says why.
    UnavailableError: Temporal does not answer, so that nobody knows whether it was done.
    """

    def __init__(self, client: Client, tasks: Tasks) -> None:
        self._steering = Steering(client)
        self._tasks = tasks

    async def resume(self, seen: Seen, sign: Signature) -> str:
        """Let a task go on: unpause it or its calls, make calls again that failed, or end its wait."""
        _require_open(seen)
        run = seen.run
        if run.run.is_paused:
            await self._steering.unpause(seen.task_id, run.run.run_id, sign)
            return "the paused task goes on"
        calls = calls_of(run)
        paused = [call for call in calls if call.state is CallState.PAUSED]
        for call in paused:
            await self._steering.unpause_call(seen.task_id, call.activity_id, sign)
        if paused:
            return f"what was paused goes on: {', '.join(call.type for call in paused)}"
        failing = [call for call in calls if call.failure and call.state is CallState.SCHEDULED]
        for call in failing:
            await self._steering.retry_call(seen.task_id, call.activity_id, sign)
        if failing:
            return f"what had failed is tried again now: {', '.join(call.type for call in failing)}"
        if seen.progress and seen.progress.waits_for_resume:
            return await self._signal(seen, "resume", None, sign)
        if seen.progress is None and is_idle(run) and seen.state is TaskState.WORKING:
            raise NoWorkerError
        raise ConflictError("nothing holds this task up that could be resumed")

    async def skip(self, seen: Seen, call_id: str, note: str, sign: Signature) -> str:
        """End a pending call; without an id the only one."""
        _require_open(seen)
        if not call_id:
            pending = seen.progress.pending_calls if seen.progress else ()
            if len(pending) != 1:
                raise ConflictError(f"name callId; pending are: {', '.join(pending) or 'none that is known'}")
            call_id = pending[0]
        return await self._signal(seen, "skip_call", SkippedCall(call_id=call_id, note=note), sign)

    async def approve(self, seen: Seen, approval: Approval, sign: Signature) -> str:
        """Answer an open question, in the place of whomever it asks."""
        _require_open(seen)
        return await self._signal(seen, "approve", approval, sign)

    async def reset(self, seen: Seen, sign: Signature) -> str:
        """Let a task that failed go on from before the failure."""
        if seen.is_open:
            raise ConflictError("the task has not ended; only one that failed can go back")
        if seen.stuck is None or "reset" not in seen.stuck.actions:
            raise ConflictError(
                "it would not help: the task did not fail, a limit ended it, or it is a sub-agent's; start a "
                "new task"
            )
        if not await self._steering.reset(seen.task_id, seen.run.run.run_id, sign):
            raise ConflictError("no worker ever took the task, so there is nothing to go back to")
        return "the task goes on from before the failure; calls that ended well are not made again"

    async def cancel(self, seen: Seen, sign: Signature) -> str:
        """Ask a task to stop."""
        _require_open(seen)
        if is_child_task_id(seen.task_id):
            above = seen.task_id.rpartition("/")[0]
            raise ConflictError(f"it is a sub-agent's: skip its call in task {above!r}, or cancel that one")
        await self._steering.cancel(seen.task_id, sign)
        return "the task was asked to stop"

    async def _signal(self, seen: Seen, name: str, given: Wire | None, sign: Signature) -> str:
        """Send a signal, and return what the task says that it did.

        Raises:
            ConflictError: the task refuses it; its words.
        """
        await self._steering.signal(seen.task_id, name, given, sign)
        try:
            told = (await self._tasks.progress(seen.task_id)).last_signal
        except (TaskUnknownError, UnavailableError):
            return f"sent the signal `{name}`; no worker answers now, so it takes effect when one does"
        refused = f"`{name}` was refused: "
        if told.startswith(refused):
            raise ConflictError(told.removeprefix(refused))
        return told if told.startswith(f"`{name}`") else f"sent the signal `{name}`"


def question_of(seen: Seen, question_id: str) -> Question:
    """Return an open question of a task.

    Raises:
        NotFoundError: there is none of this id.
    """
    for question in seen.questions:
        if question.id == question_id:
            return question
    raise NotFoundError(f"no question {question_id[:100]!r} of task {seen.task_id!r} is open")


def _require_open(seen: Seen) -> None:
    if not seen.is_open:
        raise ConflictError(f"the task has ended: it is {seen.state.value}")
