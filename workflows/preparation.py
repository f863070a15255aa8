"""What has to be known before a model is asked: the agent itself, the conversation, the tools of plugins."""

from temporalio import workflow

from everloop.workflows import announce
from everloop.workflows.activity_options import plugin_call, short_call
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import PreparedTask, PrepareTaskInput
from everloop.workflows.contract.ports import AgentPort
from everloop.workflows.endings import stop_if_cancelled
from everloop.workflows.memory import ContextMemory
from everloop.workflows.scope import TaskScope


class Preparation:
    """Gets a task ready for an agent: the one that it begins with, or one that it was handed over to."""

    def __init__(self, scope: TaskScope, memory: ContextMemory) -> None:
        self._scope = scope
        self._state = scope.state
        self._memory = memory

    async def load_agent(self) -> None:
        """Show a task that a schedule began, and let it pin the agent as it is defined now."""
        if not self._scope.task.scheduled or self._scope.task.carried:
            return
        workflow.upsert_search_attributes([names.CONTEXT_ID.value_set(self._scope.ref.context_id)])
        await announce.open_task(self._scope.ref, announce.opening(self._scope.ref, self._scope.task))
        prepared = await self._prepare(loads_agent=True)
        if prepared.agent:
            self._state.agent = prepared.agent.model_copy(update={"routing": "task"})

    async def begin(self) -> None:
        """Recall the conversation, and list the tools; a later run of the task has done so."""
        if self._scope.task.carried:
            return
        await self._memory.recall()
        await self._list_tools()

    async def take_over(self) -> None:
        """Let the agent that the task was handed over to go on with it."""
        self._state.agent, self._state.successor = self._state.successor, None
        self._state.model_index = self._state.misfits = 0
        self._scope.set_wall_clock()
        await self._list_tools()

    async def _list_tools(self) -> None:
        # The tools of the agent before shall not be offered any more.
        if not self._scope.agent.lists_tools and not self._state.listed_tools:
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
