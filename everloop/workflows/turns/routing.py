"""Routing: the first model call answers a message at once, or requests a task."""

from temporalio import workflow

from everloop.workflows import reporting
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import (
    CREATE_TASK,
    AdmitInput,
    AttachInput,
    PreparedTask,
    PrepareTaskInput,
)
from everloop.workflows.contract.events import REASON
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    FilePart,
    TextPart,
    ToolMessage,
)
from everloop.workflows.contract.ports import AgentPort, SchedulePort
from everloop.workflows.scope import TaskScope, hooked_call, plugin_call, publish, short_call
from everloop.workflows.task_limits import check_limits, stop_if_cancelled
from everloop.workflows.turns.context_memory import ContextMemory
from everloop.workflows.turns.model_turn import ModelTurn

CREATED = "The task is created. Now do the work."
NOT_YET = f"This tool cannot be called before there is a task; only {CREATE_TASK} can."
NO_WORDS = "(the model gave an empty answer)"


class RoutingTurn:
    """Decides before the loop, for agents with routing "auto". Until then the task is hidden."""

    def __init__(self, scope: TaskScope, model: ModelTurn, memory: ContextMemory) -> None:
        self._scope = scope
        self._state = scope.state
        self._model = model
        self._memory = memory

    async def run(self) -> AgentMessage | AssistantMessage | None:
        """Return the message that answers at once; None if there is a task, now visible to clients.

        A reply that is already the answer of a task is returned unchanged.

        Raises:
            ActivityError: the model refused, or the task was cancelled.
        """
        reply = await self._decide()
        if self._state.is_routed:  # the task had to be made visible meanwhile, and this reply is work on it
            return None if reply.tool_calls else reply
        if reply.tool_calls or self._state.inbox:
            await self._model.reveal_task()
            await self._answer_calls(reply)
            return None
        message = _as_message(reply)
        if not reply.rejects:
            await self._memory.save()
        return message

    async def _decide(self) -> AssistantMessage:
        """Return the first accepted reply."""
        self._state.iteration += 1
        while (reply := await self._model.ask()).refused:
            self._model.refuse(reply)
            check_limits(self._scope.agent, self._state, workflow.now())
            self._state.iteration += 1
        return reply

    async def _answer_calls(self, reply: AssistantMessage) -> None:
        """Add a result for each call of the deciding reply: providers require one."""
        state, results = self._state, list[ToolMessage]()
        for call in reply.tool_calls:
            result = call.result(CREATED) if call.name == CREATE_TASK else call.result(NOT_YET, "invalid")
            await self._scope.store_result(len(state.transcript) + len(results), result, call.name)
            results.append(result)
        if results:
            state.fold_tool_results(results)


def _as_message(reply: AssistantMessage) -> AgentMessage:
    """Return the answer instead of a task; without a status, it includes how the reply ended."""
    texts = (
        [reply.text, f"[{reply.closing}]"] if reply.text and reply.reason else [reply.text or reply.closing]
    )
    return AgentMessage(
        message_id=str(workflow.uuid4()),
        parts=tuple(TextPart(text=text or NO_WORDS) for text in texts),
        metadata={REASON: reply.reason} if reply.reason else {},
    )


# Preparation of the first model call: the agent, the conversation, the tools of plugins.


class Preparation:
    """Prepares a task for an agent: its first one, or one that took it over."""

    def __init__(self, scope: TaskScope, memory: ContextMemory) -> None:
        self._scope = scope
        self._state = scope.state
        self._memory = memory

    async def load_agent(self) -> None:
        """Make a task of a schedule visible, and pin the current definition of its agent."""
        if not self._scope.task.scheduled or self._scope.task.carried:
            return
        workflow.upsert_search_attributes([names.CONTEXT_ID.value_set(self._scope.ref.context_id)])
        try:
            await self._admit()
        finally:  # a task that may not begin is shown as one that failed
            await reporting.open_task(self._scope)
        await self._attach()
        prepared = await self._prepare(loads_agent=True)
        if prepared.agent:
            self._state.agent = prepared.agent.model_copy(update={"routing": "task"})

    async def _admit(self) -> None:
        """Count the task as its owner's: no gateway has."""
        call = AdmitInput(task=self._scope.ref)
        await workflow.execute_activity_method(SchedulePort.admit, call, **publish("count the task"))

    async def _attach(self) -> None:
        task = self._scope.task
        if not task.attachments:
            return
        parts = task.message.parts
        files = tuple(part.stored.artifact_id for part in parts if isinstance(part, FilePart) and part.stored)
        call = AttachInput(task=self._scope.ref, schedule=task.attachments, files=files)
        options = hooked_call("get what the schedule keeps")
        await workflow.execute_activity_method(SchedulePort.attach, call, **options)
        stop_if_cancelled()

    async def begin(self) -> None:
        """Recall the conversation, and list the tools. Not needed in later runs of the task."""
        if self._scope.task.carried:
            return
        await self._memory.recall()
        await self._list_tools()

    async def take_over(self) -> None:
        """Switch to the agent that takes over the task."""
        self._state.agent, self._state.successor = self._state.successor, None
        self._state.invalid_answers = 0
        self._state.come_back(to=0)
        self._scope.set_wall_clock()
        await self._list_tools()

    async def _list_tools(self) -> None:
        # Removes the tools of the previous agent, or of a fork's origin.
        fork = self._scope.task.fork
        has_list = self._state.listed_tools or (fork and any(m.role == "tools" for m in fork.messages))
        if not (self._scope.agent.lists_tools or has_list):
            return
        prepared = await self._prepare(lists_tools=True)
        if prepared.listed:
            self._state.list_tools(prepared.listed, prepared.tools)

    async def _prepare(self, *, lists_tools: bool = False, loads_agent: bool = False) -> PreparedTask:
        call = PrepareTaskInput(
            task=self._scope.ref,
            position=len(self._state.transcript),
            identity=self._scope.task.identity,
            lists_tools=lists_tools,
            loads_agent=loads_agent,
        )
        queue = self._scope.queue(names.TOOLS_QUEUE)
        options = plugin_call(queue, "list the tools") if lists_tools else short_call("load the agent")
        prepared = await workflow.execute_activity_method(AgentPort.prepare_task, call, **options)
        stop_if_cancelled()
        return prepared
