"""Tool calls of a reply: in parallel, with fallbacks, and with questions to people."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, FailureError

from everloop.workflows import approvals, reporting
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.calls import QUICK_RESULT, RunToolInput, ToolReply
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolOutcome
from everloop.workflows.contract.ports import ToolPort
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import ToolSpec
from everloop.workflows.human_input import QuestionPublisher
from everloop.workflows.scope import GIVE_UP, TaskScope, parked, quick_call, tool_call
from everloop.workflows.state import Phase, TaskRunState
from everloop.workflows.task_limits import stop_if_cancelled
from everloop.workflows.turns.sub_agents import AgentCalls

QUICK_BYTES = 3_000_000
"""Limit of the results of quick calls of one reply: Temporal gets them in one request, of at most 4 MB."""


class ToolTurn:
    """Runs each pending call until it has a result, independently of the others.

    A call with a question waits for the answer or the timeout, and runs again with it. A waiting call
    holds no slot; a serial call begins when the one before it has its result. While all calls wait
    nothing runs, so a long task may continue as a new run there, with its calls still waiting.
    """

    def __init__(self, scope: TaskScope, asking: QuestionPublisher, agent_calls: AgentCalls) -> None:
        self._scope = scope
        self._state = scope.state
        self._asking = asking
        self._agent_calls = agent_calls
        self._slots = asyncio.Semaphore(scope.agent.max_parallel_tools)
        self._running: set[str] = set()
        self._skipping: dict[str, bool] = {}
        self._quick_bytes = 0
        self._slow: set[str] = set()
        """Tools that turned out not to be quick; the task calls them like others from then on."""

    async def run(self, while_parked: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
        """Run the pending calls and add their results.

        `while_parked` is called when nothing runs; its argument returns whether that still holds.

        Raises:
            ActivityError: the task was cancelled.
        """
        state, calls = self._state, _calls(self._state)
        self._slots = asyncio.Semaphore(self._scope.agent.max_parallel_tools)
        self._skipping, self._quick_bytes = {}, 0
        if not state.questions:
            reporting.enter(state, Phase.TOOLS)
            reporting.queue_messages(state, state.take_unpublished())
        courses = {call.id: asyncio.create_task(self._take_course(call)) for call in state.pending}
        publishing = asyncio.create_task(self._asking.keep_published(self._has_next_call))
        try:
            await self._until_over(courses, publishing, while_parked)
        except GeneratorExit:  # the worker evicts the workflow, and nothing can be awaited
            raise
        except BaseException:
            # All others end, also if one of the calls has failed.
            await _cancelled(*courses.values(), publishing)
            raise
        await _cancelled(publishing)
        state.fold_tool_results([state.results[call.id] for call in calls])
        stop_if_cancelled()

    async def _until_over(
        self,
        courses: Mapping[str, asyncio.Task[None]],
        publishing: asyncio.Task[None],
        while_parked: Callable[[Callable[[], bool]], Awaitable[None]],
    ) -> None:
        """Wait until all calls have their results and the view is up to date, or a call has failed."""

        def is_over() -> bool:
            ended = [task for task in (*courses.values(), publishing) if task.done()]
            has_failed = any(task.cancelled() or task.exception() for task in ended)
            return has_failed or (len(ended) == len(courses) and self._asking.is_up_to_date)

        while not is_over():
            await workflow.wait_condition(lambda: is_over() or self._is_parked() or bool(self._to_skip()))
            for call_id in self._to_skip():
                self._skipping[call_id] = call_id in self._running
                courses[call_id].cancel()
            if self._is_parked():
                await while_parked(self._is_parked)
                with parked():  # messages without an answer make its history long, too
                    await workflow.wait_condition(
                        lambda: (
                            is_over()
                            or not self._is_parked()
                            or workflow.info().is_continue_as_new_suggested()
                        )
                    )
        for task in (*courses.values(), publishing):
            if task.done():
                task.result()

    async def _take_course(self, call: ToolCall) -> None:
        """Run the call to its result, or until an operator skips it."""
        try:
            await self._work(call)
        except (asyncio.CancelledError, ActivityError, ChildWorkflowError):
            this = asyncio.current_task()
            await self._abandon(call)
            if call.id not in self._skipping or (this and this.uncancel()):
                raise  # the task was cancelled, or this call has failed
        if call.id not in self._state.results:
            await self._skip(call)

    async def _abandon(self, call: ToolCall) -> None:
        """Notify the tool of an abandoned call, if its definition requests that.

        It may have a question, or its worker may be lost: then no attempt is notified.
        """
        begun = self._with_fallback(call)
        spec = self._scope.tool(begun.name)
        if not spec.abandons or call not in self._state.pending:
            return
        run, _ = self._run_input(begun, spec, self._position(call), (), "")
        options = tool_call(self._scope.queue(names.TOOLS_QUEUE), spec, f"{begun.name} abandoned")
        options["schedule_to_close_timeout"] = GIVE_UP
        with contextlib.suppress(ActivityError):
            run = run.model_copy(update={"abandoned": True})
            await workflow.execute_activity_method(ToolPort.run_tool, run, **options)

    async def _skip(self, call: ToolCall) -> None:
        """Add the result of a skipped call for the model, and go on."""
        note = self._state.skipped[call.id]
        content = f"an operator skipped this call{note and f': {note}'}"
        outcome: ToolOutcome = "rejected"
        if self._skipping[call.id]:
            content = f"{content}. It may or may not have taken effect; check before you repeat it."
            outcome = "unknown"
        result = call.result(content, outcome)
        await self._scope.store_result(self._position(call), result, f"{call.name} skipped")
        self._state.skip_call(call, result)
        reporting.update_details(self._state)

    async def _work(self, call: ToolCall) -> None:
        """Run the call, wait for answers to its questions, and run it again, until it has a result."""
        state = self._state
        while call.id not in state.results:
            await self._until_ready(call)
            # Calls of one batch run as one, so none of them may wait for the end of another.
            async with contextlib.nullcontext() if self._scope.tool(call.name).batch else self._slots:
                self._running.add(call.id)
                try:
                    self._asking.go_on()
                    reply = await self._run_call(call)
                finally:
                    self._running.remove(call.id)
            if isinstance(reply, Question):
                state.ask(reply)
            else:
                state.end_call(call, reply)
            reporting.update_details(state)
            stop_if_cancelled()

    async def _until_ready(self, call: ToolCall) -> None:
        """Wait for the answer to the call's question or its timeout, and for its turn."""
        state = self._state
        while not self._is_ready(call):
            left = approvals.seconds_left(state, call, workflow.now())
            if left is None:
                await workflow.wait_condition(lambda: self._is_ready(call) or approvals.is_timed(state, call))
                continue
            try:
                await workflow.wait_condition(lambda: self._is_ready(call), timeout=left)
            except TimeoutError:
                for answer in approvals.expired(state, call, workflow.now()):
                    state.take_answer(answer)

    async def _run_call(self, call: ToolCall) -> ToolReply:
        """Run the call once, with the fallbacks of its tool if it fails."""
        reply = await self._execute(call, "")
        while not isinstance(reply, Question) and reply.outcome == "error":
            failed = self._with_fallback(call)
            if not (fallback := self._scope.tool(failed.name).fallback):
                break
            stop_if_cancelled()
            self._state.fallbacks[call.id] = fallback
            reply = await self._execute(call, f"{failed.name} failed, {fallback} stands in")
        return reply

    def _is_ready(self, call: ToolCall) -> bool:
        return call.id not in approvals.waiting_calls(self._state, self._scope.agent)

    def _has_next_call(self) -> bool:
        """Return True if a waiting call is about to begin."""
        ready = approvals.ready_calls(self._state, self._scope.agent)
        return not self._slots.locked() and any(call.id not in self._running for call in ready)

    def _is_parked(self) -> bool:
        """Return True if all remaining calls wait for people, and their questions are published."""
        waits = bool(self._state.pending) and not approvals.ready_calls(self._state, self._scope.agent)
        is_still = not self._running and not any(
            call.id in self._state.skipped for call in self._state.pending
        )
        return waits and is_still and self._asking.is_up_to_date

    def _to_skip(self) -> list[str]:
        """Return the calls that an operator skipped, and that are not cancelled yet."""
        skipped = self._state.skipped.keys() - self._skipping.keys()
        return [call.id for call in self._state.pending if call.id in skipped]

    async def _execute(self, call: ToolCall, warning: str) -> ToolReply:
        tool_call_ = self._with_fallback(call)
        spec, position = self._scope.tool(tool_call_.name), self._position(call)
        if spec.agent or spec.handoff:
            return await self._agent_calls.take(spec, tool_call_, position, warning)
        tried = ""
        if self._is_quick(call, tool_call_.name, spec):
            run, summary = self._run_input(tool_call_, spec, position, (), warning)
            reply = await self._try_quickly(run, summary)
            if not isinstance(reply, str):
                return reply
            tried = reply
        with self._scope.outbox.carried() as statuses:
            run, summary = self._run_input(tool_call_, spec, position, statuses, warning)
            run = run.model_copy(update={"tried": tried}) if tried else run
            options = tool_call(self._scope.queue(names.TOOLS_QUEUE), spec, summary)
            return await _until_ended(workflow.start_activity_method(ToolPort.run_tool, run, **options))

    def _run_input(
        self,
        call: ToolCall,
        spec: ToolSpec,
        position: int,
        statuses: tuple[StatusChanged, ...],
        warning: str,
    ) -> tuple[RunToolInput, str]:
        call_input, reply = self._scope.call_input(call, statuses, warning), len(self._state.transcript) - 1
        run = RunToolInput(
            **dict(call_input),
            position=position,
            reply=-1 if position == reply + 1 else reply,
            timeout=spec.timeout,
            plugin=spec.plugin,
            digest=spec.digest,
            has_fallback=spec.fallback is not None,
            together=self._together(call) if spec.batch else 1,
        )
        asks = spec.asks or bool(call_input.approvers)
        return run, reporting.tool_summary(call, asks=asks, answers=call_input.answers)

    def _together(self, call: ToolCall) -> int:
        """Count the calls of a tool that begin with this one: those without questions until now."""
        state = self._state
        begin = (
            each for each in approvals.ready_calls(state, self._scope.agent) if each.id not in state.answers
        )
        return max(1, sum(state.fallbacks.get(each.id, each.name) == call.name for each in begin))

    def _is_quick(self, call: ToolCall, tool: str, spec: ToolSpec) -> bool:
        """Return True if a call runs inside the workflow.

        A call after an answer does not: it has a status to publish, which a quick one must not (ADR
        33).
        """
        has_room = tool not in self._slow and self._quick_bytes + QUICK_RESULT <= QUICK_BYTES
        is_local = self._scope.queue(names.TOOLS_QUEUE) is None and not spec.task_queue
        return spec.quick and is_local and has_room and not self._state.answers.get(call.id)

    async def _try_quickly(self, run: RunToolInput, summary: str) -> ToolReply | str:
        """Run a call inside the workflow; return the failure type if it has to run like any other.

        Raises:
            CancelledError: the task was cancelled, or this call.
        """
        run = run.model_copy(update={"scheduled": workflow.now()})
        running = workflow.start_local_activity_method(ToolPort.run_tool, run, **quick_call(summary))
        self._quick_bytes += QUICK_RESULT
        try:
            reply = await _until_ended(running)
        except FailureError as error:
            stop_if_cancelled()
            # A replay raises the failure in the history, which is only the cause.
            failure = error.cause if isinstance(error, ActivityError) else error
            named = (isinstance(failure, ApplicationError) and failure.type) or type(failure).__name__
            if named in _NOT_QUICK:
                self._slow.add(run.call.name)
            if isinstance(failure, ApplicationError) and failure.next_retry_delay:
                await workflow.sleep(failure.next_retry_delay)
            return named
        self._quick_bytes += len(reply.model_dump_json().encode()) - QUICK_RESULT
        return reply

    def _with_fallback(self, call: ToolCall) -> ToolCall:
        name = self._state.fallbacks.get(call.id, call.name)
        return call.model_copy(update={"name": name})

    def _position(self, call: ToolCall) -> int:
        """Return the position of a call's result in the transcript, after the reply that made it."""
        return len(self._state.transcript) + [c.id for c in _calls(self._state)].index(call.id)


_NOT_QUICK = (failures.NOT_QUICK, TimeoutError.__name__)


def _calls(state: TaskRunState) -> tuple[ToolCall, ...]:
    """Return all calls of the last reply in the transcript."""
    reply = state.transcript[-1]
    return reply.tool_calls if isinstance(reply, AssistantMessage) else ()


async def _until_ended(running: workflow.ActivityHandle[ToolReply]) -> ToolReply:
    """Return the result of a tool. A cancellation also cancels the tool, and waits a limited time for it."""
    shielded = asyncio.shield(running)
    try:
        return await shielded
    except asyncio.CancelledError:
        if shielded.done() and not shielded.cancelled():
            shielded.exception()  # it failed at this moment; asyncio would log it as never retrieved
        running.cancel()
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(running.done, timeout=GIVE_UP)
        if running.done():
            return running.result()
        raise


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait for their end, whatever it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
