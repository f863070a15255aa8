"""The loop of a task: call the model, run its tool calls, add the results, repeat."""

from collections.abc import Callable

from temporalio import workflow

from everloop.workflows.contract.messages import AgentMessage, AssistantMessage
from everloop.workflows.human_input import QuestionPublisher
from everloop.workflows.scope import TaskScope
from everloop.workflows.task_limits import (
    TaskStoppedError,
    allows_last_call,
    check_limits,
    check_size,
    no_artifact,
    tells_of_failures,
)
from everloop.workflows.turns.context_memory import ContextMemory
from everloop.workflows.turns.model_turn import ModelTurn
from everloop.workflows.turns.routing import Preparation, RoutingTurn
from everloop.workflows.turns.sub_agents import AgentCalls
from everloop.workflows.turns.tool_turn import ToolTurn


class Loop:
    """Runs a task until the model answers and no new message has arrived meanwhile."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._state = scope.state
        self.model = ModelTurn(scope)
        self.memory = ContextMemory(scope, self.model)
        self.preparation = Preparation(scope, self.memory)
        self._tools = ToolTurn(scope, QuestionPublisher(scope), AgentCalls(scope))
        self._routing = RoutingTurn(scope, self.model, self.memory)
        self._waited_for_people = False
        self._durations = workflow.metric_meter().create_histogram_timedelta(
            "everloop_iteration_duration",
            "one model call and the tools it asked for, without those that parked",
        )

    async def route(self) -> AgentMessage | AssistantMessage | None:
        """Prepare the task; return the message that answers at once, None if there is a task.

        Raises:
            ActivityError: the model refused, or the task was cancelled. Then there is a task, which fails.
        """
        await self.preparation.begin()
        return await self._routing.run() if self._scope.has_hidden_task else None

    async def run(self) -> AssistantMessage:
        """Return the answer.

        Raises:
            TaskStoppedError: a limit of the agent was reached, or a required artifact is missing.
            ActivityError: the model refused, or the task was cancelled.
            ContinueAsNewError: the history got long; the task continues in a new run.
        """
        state = self._state
        while True:
            if not state.pending:
                limit = self._find_limit()
                await self._continue_if_long()
                if limit:  # set here, so that a new run, which reaches it again, makes the call
                    state.last_call, state.last_reason = limit.limit, limit.type
                state.iteration += 1
            began, self._waited_for_people = workflow.now(), bool(state.pending)
            with workflow.create_event_group(f"iteration {state.iteration}").scope():
                answer = await self._iterate()
            if not self._waited_for_people:
                self._durations.record(workflow.now() - began, {"agent": self._scope.agent.id})
            if answer:
                return answer

    def _find_limit(self) -> TaskStoppedError | None:
        """Return the limit for which the model gives its last answer; None before a limit.

        Raises:
            TaskStoppedError: the task ends here.
        """
        try:
            check_limits(self._scope.agent, self._state, workflow.now())
        except TaskStoppedError as stopped:
            if not allows_last_call(stopped, self._scope.agent, self._state):
                raise
            return stopped
        return None

    async def _iterate(self) -> AssistantMessage | None:
        """Call the model and run its calls, or continue waiting calls; return the answer, if any."""
        state = self._state
        if not state.pending:
            reply = await self.model.ask()
            if reply.refused:
                self.model.refuse(reply)
                return None
            if not (reply.tool_calls or state.answer or state.inbox):
                state.hold_answer(reply, is_data=self._scope.agent.has_output and not reply.rejects)
                return reply if reply.rejects or self._has_artifact() else None
        if state.pending:
            await self._run_tools()
        if state.successor:
            await self.preparation.take_over()
        return self._end_with_artifact() if state.answer else None

    async def _run_tools(self) -> None:
        """Run the pending calls, and tell the model after too many failures in a row."""
        state, before = self._state, self._state.tool_failures
        await self._tools.run(while_parked=self._park)
        if state.tool_failures > before and tells_of_failures(self._scope.agent, state):
            state.add_notice(
                f"In the last {state.tool_failures} iterations no tool call worked. Do something else, or "
                "answer with what you have."
            )

    def _has_artifact(self) -> bool:
        """Return True if the task has an artifact, or needs none."""
        return bool(self._state.artifact_ids) or self._scope.agent.artifact_tool is None

    def _end_with_artifact(self) -> AssistantMessage | None:
        """Return the answer that waited for its artifact; None if new messages have arrived."""
        if self._state.inbox:
            return None
        if not self._has_artifact():
            raise no_artifact(self._scope.agent)
        return self._state.answer

    async def _park(self, is_parked: Callable[[], bool]) -> None:
        self._waited_for_people = True
        check_size(self._state)
        await self._continue_if_long(is_parked)

    async def _continue_if_long(self, may: Callable[[], bool] = lambda: True) -> None:
        """Continue in a new run if Temporal suggests it. Nothing runs and everything is published here.

        Work may begin while handlers end; `may` returns True if it has not.
        """
        if not workflow.info().is_continue_as_new_suggested():
            return
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() or not may())
        if may():
            self._state.previous_run, self._state.resent = self._scope.ref.run_id, 0
            task = self._scope.task
            fork = task.fork and task.fork.model_copy(update={"messages": ()})  # the transcript has them
            workflow.continue_as_new(task.model_copy(update={"carried": self._state, "fork": fork}))
