"""The loop of a task: ask the model, run the tools it asks for, fold the results in, again."""

from temporalio import workflow

from workflows.contract.messages import AgentMessage, AssistantMessage
from workflows.contract.tasks import TaskRef
from workflows.limits import check_limits, no_artifact
from workflows.model_turn import ModelTurn
from workflows.routing import RoutingTurn
from workflows.state import CarriedTask, TaskRunState
from workflows.sub_agent import SubAgentTurn
from workflows.tool_turn import ToolTurn

CONTINUE_AS_NEW = "continue_as_new"
"""Tasks that were in flight before this patch stay in one run."""


class Loop:
    """Runs a task until the model answers and nobody has said anything meanwhile."""

    def __init__(self, ref: TaskRef, task: CarriedTask, state: TaskRunState) -> None:
        self._ref = ref
        self._task = task
        self._state = state
        self._model = ModelTurn(ref, task, state)
        self._tools = ToolTurn(ref, task, state, SubAgentTurn(ref, task, state))
        self._routing = RoutingTurn(ref, task, state, self._model)

    async def route(self) -> AgentMessage | AssistantMessage | None:
        """Return what answers the message at once, for agents that may do so; None: there is a task.

        Raises:
            ActivityError: the model refused, or the task was cancelled. Then there is a task, which fails.
        """
        return await self._routing.run() if self._routing.is_open else None

    async def remember(self, answer: AssistantMessage) -> None:
        """Keep what was said for later tasks of the context."""
        if self._task.agent.routing == "auto":
            await self._routing.remember(answer)

    async def run(self) -> AssistantMessage:
        """Return the answer.

        Raises:
            TaskStoppedError: a limit of the agent was reached, or there is no artifact where one has to be.
            ActivityError: the model refused, or the task was cancelled.
            ContinueAsNewError: the history got long; the task goes on in a new run.
        """
        state = self._state
        while True:
            if not state.pending:
                await self._continue_if_long()
                check_limits(self._task.agent, state, workflow.now())
                state.iteration += 1
            with workflow.create_event_group(f"iteration {state.iteration}").scope():
                if answer := await self._iterate():
                    return answer

    async def _iterate(self) -> AssistantMessage | None:
        """Ask the model and run its calls, or go on with calls that wait; return the answer, if any."""
        state = self._state
        if not state.pending:
            reply = await self._model.ask()
            if not (reply.tool_calls or state.answer or state.inbox):
                state.hold_answer(reply)
                return reply if self._has_artifact() else None
        if state.pending:
            await self._tools.run(while_parked=self._continue_if_long)
        return self._end_with_artifact() if state.answer else None

    def _has_artifact(self) -> bool:
        """Whether the task leaves an artifact, or need not."""
        return bool(self._state.artifact_ids) or self._task.agent.artifact_tool is None

    def _end_with_artifact(self) -> AssistantMessage | None:
        """Return the answer that waited for its artifact; None if the client has said more meanwhile."""
        if self._state.inbox:
            return None
        if not self._has_artifact():
            raise no_artifact(self._task.agent)
        return self._state.answer

    async def _continue_if_long(self) -> None:
        """Go on in a new run where Temporal suggests it. Nothing runs and everything is published here."""
        if workflow.info().is_continue_as_new_suggested() and workflow.patched(CONTINUE_AS_NEW):
            await workflow.wait_condition(workflow.all_handlers_finished)
            self._state.previous_run = self._ref.run_id
            workflow.continue_as_new(self._task.model_copy(update={"carried": self._state}))
