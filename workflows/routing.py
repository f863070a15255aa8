"""Whether a message becomes a task: the first model call answers it at once, or asks for a task."""

from temporalio import workflow

from workflows.activity_options import short_call
from workflows.contract.calls import CREATE_TASK, LoadContextInput, SaveContextInput, StoreResultInput
from workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    TextPart,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from workflows.contract.ports import ContextPort, ToolPort
from workflows.contract.tasks import TaskInput, TaskRef
from workflows.model_turn import ModelTurn
from workflows.state import TaskRunState

CREATED = "The task is created. Now do the work."
NOT_YET = f"This tool cannot be called before there is a task; only {CREATE_TASK} can."
NO_WORDS = "(the model gave an empty answer)"


class RoutingTurn:
    """Decides, for agents that route by themselves, before the loop begins. Until then the task is hidden."""

    def __init__(self, ref: TaskRef, task: TaskInput, state: TaskRunState, model: ModelTurn) -> None:
        self._ref = ref
        self._task = task
        self._state = state
        self._model = model

    @property
    def is_open(self) -> bool:
        """Whether nobody has decided yet."""
        return self._task.agent.routing == "auto" and not self._state.is_routed

    async def run(self) -> AgentMessage | AssistantMessage | None:
        """Return the message that answers at once; None if there is a task, which clients now see.

        A reply that is already the answer of a task is returned as it is.

        Raises:
            ActivityError: the model refused, or the task was cancelled.
        """
        await self._load_conversation()
        self._state.iteration += 1
        reply = await self._model.ask()
        if self._state.is_routed:  # it had to be shown meanwhile, and this reply is work on it
            return None if reply.tool_calls else reply
        if reply.tool_calls or self._state.inbox:
            await self._model.show()
            await self._answer_calls(reply)
            return None
        message = AgentMessage(
            message_id=str(workflow.uuid4()), parts=(TextPart(text=reply.text or reply.closing or NO_WORDS),)
        )
        await self.remember(reply)
        return message

    async def remember(self, reply: AssistantMessage) -> None:
        """Add what was said to the conversation of the context."""
        said = tuple(m for m in self._state.transcript[self._state.recalled :] if isinstance(m, UserMessage))
        answer = AssistantMessage(text=reply.text or reply.closing)
        await workflow.execute_activity_method(
            ContextPort.save_context,
            SaveContextInput(task=self._ref, messages=(*said, answer)),
            **short_call("remember what was said"),
        )

    async def _load_conversation(self) -> None:
        """Let the transcript begin with what was said in the context before."""
        loaded = await workflow.execute_activity_method(
            ContextPort.load_context,
            LoadContextInput(task=self._ref),
            **short_call("recall the conversation"),
        )
        earlier: list[TranscriptMessage] = list(loaded.messages)
        self._state.recall(earlier)

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
                    task=self._ref, position=len(state.transcript) + len(results), result=result
                ),
                **short_call(call.name),
            )
            results.append(result)
        if results:
            state.fold_tool_results(results)
