"""Whether a message becomes a task: the first model call answers it at once, or asks for a task."""

from temporalio import workflow

from everloop.workflows.activity_options import short_call
from everloop.workflows.contract.calls import CREATE_TASK, StoreResultInput
from everloop.workflows.contract.messages import AgentMessage, AssistantMessage, TextPart, ToolMessage
from everloop.workflows.contract.ports import ToolPort
from everloop.workflows.limits import check_limits
from everloop.workflows.memory import ContextMemory
from everloop.workflows.model_turn import ModelTurn
from everloop.workflows.scope import TaskScope

CREATED = "The task is created. Now do the work."
NOT_YET = f"This tool cannot be called before there is a task; only {CREATE_TASK} can."
NO_WORDS = "(the model gave an empty answer)"


class RoutingTurn:
    """Decides, for agents that route by themselves, before the loop begins. Until then the task is hidden."""

    def __init__(self, scope: TaskScope, model: ModelTurn, memory: ContextMemory) -> None:
        self._scope = scope
        self._state = scope.state
        self._model = model
        self._memory = memory

    async def run(self) -> AgentMessage | AssistantMessage | None:
        """Return the message that answers at once; None if there is a task, which clients now see.

        A reply that is already the answer of a task is returned as it is.

        Raises:
            ActivityError: the model refused, or the task was cancelled.
        """
        reply = await self._decide()
        if self._state.is_routed:  # it had to be shown meanwhile, and this reply is work on it
            return None if reply.tool_calls else reply
        if reply.tool_calls or self._state.inbox:
            await self._model.show()
            await self._answer_calls(reply)
            return None
        message = AgentMessage(
            message_id=str(workflow.uuid4()), parts=(TextPart(text=reply.text or reply.closing or NO_WORDS),)
        )
        if not reply.rejects:
            await self._memory.save()
        return message

    async def _decide(self) -> AssistantMessage:
        """Return the first reply that stands."""
        self._state.iteration += 1
        while (reply := await self._model.ask()).refused:
            self._model.refuse(reply)
            check_limits(self._scope.agent, self._state, workflow.now())
            self._state.iteration += 1
        return reply

    async def _answer_calls(self, reply: AssistantMessage) -> None:
        """Give each call of the deciding reply its result: providers want one."""
        state, results = self._state, list[ToolMessage]()
        for call in reply.tool_calls:
            is_known = call.name == CREATE_TASK
            result = ToolMessage(
                call_id=call.id,
                name=call.name,
                content=CREATED if is_known else NOT_YET,
                outcome="ok" if is_known else "invalid",
            )
            await workflow.execute_activity_method(
                ToolPort.store_result,
                StoreResultInput(
                    task=self._scope.ref, position=len(state.transcript) + len(results), result=result
                ),
                **short_call(call.name),
            )
            results.append(result)
        if results:
            state.fold_tool_results(results)
