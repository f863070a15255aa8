"""Addresses of operators: tasks of all owners, reasons for stuck ones with remedies, and the system's health.

    GET  /operator/tasks                  ?state= &agent= &owner= &stuck=true
    GET  /operator/tasks/{id}             one, with the progress that its workflow reports
    POST /operator/tasks/{id}/resume      resume it: {}
    POST /operator/tasks/{id}/skip        end a call: {"callId": "…", "note": "…"}
    POST /operator/tasks/{id}/reset       go back to before the failure: {"to": "lastGood"}
    POST /operator/tasks/{id}/cancel      request its cancellation: {}
    POST /operator/tasks/{id}/approve     answer a question: {"questionId": "…", "approved": true, …}
    GET  /operator/system                 versions, queues, workers, health, counts

They require the scope admin. Without authentication, every caller is the operator of the anonymous
owner's tasks.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Literal
from uuid import uuid4

import structlog
from a2a.utils.errors import InvalidParamsError
from pydantic import Field, JsonValue
from starlette.responses import Response

from everloop.gateway.auth.scopes import ADMIN, AGENTS, is_bound_to_agents, may_use, require_scope
from everloop.gateway.context import Caller
from everloop.gateway.errors import NoWorkerError, TaskUnknownError, UnavailableError
from everloop.gateway.extension.operator import system
from everloop.gateway.extension.operator.diagnosis import calls_of, is_idle
from everloop.gateway.extension.operator.overview import Overview, OverviewFilter, OverviewTask
from everloop.gateway.http.http_calls import MAX_NOTE, HttpCall, RequestBody, answer, name_of
from everloop.gateway.http.http_errors import ConflictError, NotFoundError
from everloop.gateway.services import Services
from everloop.gateway.tasks.steering import Signature, Steering
from everloop.runtime.temporal.inspection import CallState
from everloop.workflows.contract.names import is_agent_id, is_child_task_id
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import ApproveInput, SkippedCall
from everloop.workflows.contract.tasks import TaskState

_NO_AGENT = "-"
"""Placeholder for the agents of a caller who is bound to invalid ids only. It is not a valid id."""

_log = structlog.get_logger()

Act = Callable[[OverviewTask, Signature], Awaitable[str]]


class _NothingBody(RequestBody):
    expected: ClassVar[str] = "{}"


class _SkipBody(RequestBody):
    expected: ClassVar[str] = f'{{"callId": "…", "note": "…"}}; the note has at most {MAX_NOTE} characters'

    call_id: str = ""
    note: str = Field(default="", max_length=MAX_NOTE)


class _ResetBody(RequestBody):
    expected: ClassVar[str] = '{"to": "lastGood"}'

    to: Literal["lastGood"] = "lastGood"


class _ApproveBody(RequestBody):
    expected: ClassVar[str] = (
        '{"questionId": "…", "approved": true, "note": "…", "value": …}; '
        f"the note has at most {MAX_NOTE} characters"
    )

    question_id: str
    approved: bool
    note: str = Field(default="", max_length=MAX_NOTE)
    value: JsonValue = None


@dataclass(frozen=True)
class Operator:
    """Handlers of these addresses. Every action may be repeated.

    Raises of all actions: ConflictError: it does not apply to the task in this state; the message says
    why. UnavailableError: Temporal does not respond, so the outcome is unknown.
    """

    services: Services
    overview: Overview

    def authorize(self, caller: Caller) -> None:
        """Reject callers without the scope of operators."""
        if not self.services.is_open:
            require_scope(caller, ADMIN)

    # Queries.

    async def list_tasks(self, call: HttpCall) -> Response:
        """List the tasks of all owners."""
        page, only_stuck = call.page, call.query("stuck")
        if only_stuck not in {"", "true", "false"}:
            raise InvalidParamsError("stuck is neither true nor false")
        if call.query("agent") and not is_agent_id(call.query("agent")):
            raise InvalidParamsError("agent is no id of an agent; give one as GET /agents lists them")
        task_filter = OverviewFilter(
            state=_state(call.query("state")),
            agent=call.query("agent"),
            owner=call.caller.owner if self.services.is_open else call.query("owner"),
            only_stuck=only_stuck == "true",
            agents=_agents_of(call.caller),
        )
        tasks, token = await self.overview.page(task_filter, page)
        if not self.services.is_open:
            _log.info(
                "tasks of other owners listed", admin=name_of(call.caller), of=task_filter.owner or "all"
            )
        return answer({"tasks": [each.to_json() for each in tasks], "nextPageToken": token})

    async def show(self, call: HttpCall) -> Response:
        """Show a task."""
        return answer({"task": (await self._find(call)).to_json()})

    async def show_system(self, call: HttpCall) -> Response:
        """Show the state of the system."""
        owner = call.caller.owner if self.services.is_open else ""
        counts = await self.overview.counts(owner, _agents_of(call.caller))
        return answer({**await system.show_system(self.services), "tasks": counts})

    async def _find(self, call: HttpCall) -> OverviewTask:
        """Return the task of the address.

        Raises:
            TaskUnknownError: it does not exist for this caller.
        """
        task = await self.overview.find(call.id())
        is_foreign = self.services.is_open and task.owner != call.caller.owner
        if is_foreign or not may_use(call.caller, task.agent_id):
            raise TaskUnknownError(call.id())
        return task

    # Actions.

    async def resume(self, call: HttpCall) -> Response:
        """Unpause a task or its calls, repeat failed calls, or end its wait for an operator."""
        await call.body(_NothingBody)
        return await self._act(call, "resume", self._let_go_on)

    async def _let_go_on(self, task: OverviewTask, sign: Signature) -> str:
        _require_open(task)
        run, steering = task.run, Steering(self.services.client)
        if run.run.is_paused:
            await steering.unpause(task.task_id, run.run.run_id, sign)
            return "the paused task goes on"
        calls = calls_of(run)
        paused = [call for call in calls if call.state is CallState.PAUSED]
        for call in paused:
            await steering.unpause_call(task.task_id, call.activity_id, sign)
        if paused:
            return f"what was paused goes on: {', '.join(call.type for call in paused)}"
        failing = [call for call in calls if call.failure and call.state is CallState.SCHEDULED]
        for call in failing:
            await steering.retry_call(task.task_id, call.activity_id, sign)
        if failing:
            return f"what had failed is tried again now: {', '.join(call.type for call in failing)}"
        if task.progress and task.progress.waits_for_resume:
            return await self._signal(task, "resume", None, sign)
        if task.progress is None and is_idle(run) and task.state is TaskState.WORKING:
            raise NoWorkerError
        raise ConflictError("nothing holds this task up that could be resumed")

    async def skip(self, call: HttpCall) -> Response:
        """End a pending call; without an id the only one."""
        body = await call.body(_SkipBody)

        async def skip(task: OverviewTask, sign: Signature) -> str:
            _require_open(task)
            pending = task.progress.pending_calls if task.progress else ()
            call_ids = (body.call_id,) if body.call_id else pending
            if len(call_ids) != 1:
                raise ConflictError(f"name callId; pending are: {', '.join(pending) or 'none that is known'}")
            skipped = SkippedCall(call_id=call_ids[0], note=body.note)
            return await self._signal(task, "skip_call", skipped, sign)

        return await self._act(call, "skip", skip)

    async def reset(self, call: HttpCall) -> Response:
        """Continue a failed task from before the failure."""
        await call.body(_ResetBody)

        async def reset(task: OverviewTask, sign: Signature) -> str:
            if task.is_open:
                raise ConflictError("the task has not ended; only one that failed can go back")
            if task.stuck is None or "reset" not in task.stuck.actions:
                raise ConflictError(
                    "it would not help: the task did not fail, a limit ended it, or it is a sub-agent's; "
                    "start a new task"
                )
            if not await Steering(self.services.client).reset(task.task_id, task.run.run.run_id, sign):
                raise ConflictError("no worker ever took the task, so there is nothing to go back to")
            self.services.reconciler.check_soon(task.task_id)  # clients see it at once
            return "the task goes on from before the failure; calls that ended well are not made again"

        return await self._act(call, "reset", reset)

    async def cancel(self, call: HttpCall) -> Response:
        """Request the cancellation of a task."""
        await call.body(_NothingBody)

        async def cancel(task: OverviewTask, sign: Signature) -> str:
            _require_open(task)
            if is_child_task_id(task.task_id):
                above = task.task_id.rpartition("/")[0]
                raise ConflictError(
                    f"it is a sub-agent's: skip its call in task {above!r}, or cancel that one"
                )
            await Steering(self.services.client).cancel(task.task_id, sign)
            return "the task was asked to stop"

        return await self._act(call, "cancel", cancel)

    async def approve(self, call: HttpCall) -> Response:
        """Answer an open question, in place of its addressee."""
        body = await call.body(_ApproveBody)

        async def approve(task: OverviewTask, sign: Signature) -> str:
            question = next((each for each in task.questions if each.id == body.question_id), None)
            if question is None:
                raise NotFoundError(
                    f"no question {body.question_id[:100]!r} of task {task.task_id!r} is open"
                )
            is_own = self.services.is_open or question.is_for_owner
            if not is_own and call.caller.owner == task.owner:
                raise ConflictError("this question asks others than the owner; somebody else has to answer")
            _require_open(task)
            given = ApproveInput(
                call_id=body.question_id, approved=body.approved, note=body.note, value=body.value
            )
            return await self._signal(task, "approve", given, sign)

        return await self._act(call, "approve", approve)

    async def _act(self, call: HttpCall, name: str, act: Act) -> Response:
        """Run an action on the task of the address, and log its operator."""
        task = await self._find(call)
        sign = Signature(name_of(call.caller), _request_id(call, name))
        about = {
            "action": name,
            "task_id": task.task_id,
            "agent_id": task.agent_id,
            "owner": task.owner,
            "operator": sign.by,
        }
        try:
            done = await act(task, sign)
        except TaskUnknownError as error:
            _log.info("operator's action refused", **about)
            raise ConflictError("the task has ended meanwhile") from error
        except ConflictError:  # it may repeat a question, which is content
            _log.info("operator's action refused", **about)
            raise
        _log.info("operator acted on a task", **about, done=done)
        return answer({"task": (await self._find(call)).to_json(), "done": done})

    async def _signal(self, task: OverviewTask, name: str, given: Wire | None, sign: Signature) -> str:
        """Send a signal, and return the task's report about it.

        Raises:
            ConflictError: the task rejects it; the message is the task's.
        """
        await Steering(self.services.client).signal(task.task_id, name, given, sign)
        try:
            told = (await self.services.tasks.progress(task.task_id)).last_signal
        except (TaskUnknownError, UnavailableError):
            return f"sent the signal `{name}`; no worker answers now, so it takes effect when one does"
        refused = f"`{name}` was refused: "
        if told.startswith(refused):
            raise ConflictError(told.removeprefix(refused))
        return told if told.startswith(f"`{name}`") else f"sent the signal `{name}`"


def _require_open(task: OverviewTask) -> None:
    if not task.is_open:
        raise ConflictError(f"the task has ended: it is {task.state.value}")


def _request_id(call: HttpCall, name: str) -> str:
    """Return the id by which a retry of an action is recognized."""
    if not call.key:
        return str(uuid4())
    words = f"{call.caller.owner}\x1f{call.id()}\x1f{name}\x1f{call.key}"
    return hashlib.sha256(words.encode()).hexdigest()


def _state(text: str) -> TaskState | None:
    if not text:
        return None
    try:
        return TaskState(text)
    except ValueError:
        raise InvalidParamsError(f"state is none of {', '.join(TaskState)}") from None


def _agents_of(caller: Caller) -> tuple[str, ...]:
    """Return the agents that a caller is bound to; empty for an unbound caller."""
    if not is_bound_to_agents(caller):
        return ()
    named = (scope.removeprefix(AGENTS) for scope in caller.scopes or () if scope.startswith(AGENTS))
    return tuple(sorted(agent_id for agent_id in named if is_agent_id(agent_id))) or (_NO_AGENT,)
