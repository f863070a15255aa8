"""Running the tools of a reply: side by side, with fallbacks, and with people in between."""

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import workflow

from workflows import announce, approvals, display
from workflows.activity_options import tool_call
from workflows.asking import Asking
from workflows.colleagues import Colleagues
from workflows.contract import names
from workflows.contract.calls import RunToolInput, ToolReply
from workflows.contract.events import StatusChanged
from workflows.contract.messages import AssistantMessage, ToolCall
from workflows.contract.ports import ToolPort
from workflows.contract.questions import Question
from workflows.contract.tasks import TaskState
from workflows.endings import stop_if_cancelled
from workflows.scope import TaskScope
from workflows.state import Phase, TaskRunState


class ToolTurn:
    """Brings each pending call to a result. A call that asks people comes again with their answer.

    The calls run in rounds: all that wait for nobody, side by side, of serial ones the first; then, if any
    has asked, the task waits until somebody answers. While it waits nothing runs, so a long task may continue
    as a new run there.
    """

    def __init__(self, scope: TaskScope, asking: Asking, colleagues: Colleagues) -> None:
        self._scope = scope
        self._state = scope.state
        self._asking = asking
        self._colleagues = colleagues
        self._slots = asyncio.Semaphore(scope.agent.max_parallel_tools)

    async def run(self, while_parked: Callable[[], Awaitable[None]]) -> None:
        """Run the pending calls and fold their results in; `while_parked` is called whenever nothing runs.

        Raises:
            ActivityError: the task was cancelled.
        """
        state = self._state
        calls = _calls(state)
        self._slots = asyncio.Semaphore(self._scope.agent.max_parallel_tools)
        announce.enter(state, Phase.TOOLS)
        while state.pending:
            if not self._ready_calls():
                await self._park(while_parked)
            await self._run_round(self._next_status())
        state.fold_tool_results([state.results[call.id] for call in calls])
        stop_if_cancelled()

    async def _run_round(self, status: StatusChanged | None) -> None:
        """Run the calls that wait for nobody; the first one carries the status."""
        ended = asyncio.Event()
        relaying = asyncio.create_task(self._asking.relay(ended))  # it does nothing until a sub-agent asks
        # Every call has ended when this returns or raises, also after a cancellation.
        outcomes = await asyncio.gather(
            *(self._run_call(call, status if i == 0 else None) for i, call in enumerate(self._ready_calls())),
            return_exceptions=True,
        )
        ended.set()
        if self._state.has_relayed:
            await relaying
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        stop_if_cancelled()

    async def _run_call(self, call: ToolCall, status: StatusChanged | None) -> None:
        state = self._state
        async with self._slots:
            reply = await self._execute(call, status, "")
            while not isinstance(reply, Question) and reply.outcome == "error":
                failed = self._stand_in(call)
                if not (fallback := self._scope.tool(failed.name).fallback):
                    break
                stop_if_cancelled()
                state.fallbacks[call.id] = fallback
                reply = await self._execute(call, None, f"{failed.name} failed, {fallback} stands in")
        if isinstance(reply, Question):
            state.ask(reply)
        else:
            state.end_call(call, reply)
        announce.show(state)

    async def _execute(self, call: ToolCall, status: StatusChanged | None, warning: str) -> ToolReply:
        tool_call_ = self._stand_in(call)
        spec, position = self._scope.tool(tool_call_.name), self._position(call)
        if spec.agent or spec.handoff:
            return await self._colleagues.take(spec, tool_call_, position, status, warning)
        return await workflow.execute_activity_method(
            ToolPort.run_tool,
            RunToolInput(
                task=self._scope.ref,
                call=tool_call_,
                position=position,
                reply=len(self._state.transcript) - 1,
                timeout=spec.timeout,
                status=status,
                answers=tuple(self._state.answers.get(call.id, ())),
                warning=warning,
                identity=self._scope.task.identity,
                plugin=spec.plugin,
                digest=spec.digest,
            ),
            **tool_call(self._scope.queue(names.TOOLS_QUEUE), spec, display.tool_summary(tool_call_)),
        )

    async def _park(self, while_parked: Callable[[], Awaitable[None]]) -> None:
        """Show the open questions and wait until one is answered."""
        state = self._state
        announce.enter(state, Phase.WAITING)
        if not state.status.state.is_interrupted or not self._asking.is_shown:
            await self._asking.show()
        await while_parked()
        await self._wait_for_answer()
        announce.enter(state, Phase.TOOLS)
        await self._asking.tell_parent()

    def _next_status(self) -> StatusChanged | None:
        """Return what the next call tells: that the task works again, what was said, or nothing."""
        state = self._state
        received = state.take_heard()
        if not state.status.state.is_interrupted:
            return announce.say(state, received)
        announce.index(TaskState.WORKING)
        return announce.working(state, received=received)

    async def _wait_for_answer(self) -> None:
        state = self._state
        while not self._ready_calls():
            seconds = approvals.seconds_to_deadline(state.questions, workflow.now())
            try:
                await workflow.wait_condition(lambda: bool(self._ready_calls()), timeout=seconds)
            except TimeoutError:
                for answer in approvals.expired(state.questions, workflow.now()):
                    state.take_answer(answer)

    def _ready_calls(self) -> list[ToolCall]:
        return approvals.ready_calls(self._state, self._scope.agent)

    def _stand_in(self, call: ToolCall) -> ToolCall:
        """Return the call as it runs now: with the fallback in place of a tool that failed."""
        name = self._state.fallbacks.get(call.id, call.name)
        return call.model_copy(update={"name": name})

    def _position(self, call: ToolCall) -> int:
        """Return the place of a call's result in the transcript, behind the reply that asks for it."""
        return len(self._state.transcript) + [c.id for c in _calls(self._state)].index(call.id)


def _calls(state: TaskRunState) -> tuple[ToolCall, ...]:
    """Return all calls of the reply that stands at the end of the transcript."""
    reply = state.transcript[-1]
    return reply.tool_calls if isinstance(reply, AssistantMessage) else ()
