"""The tools that plugins list for a task: asked for once, told, and cached where model calls find them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.catalogue import AgentCatalogue, list_task_tools
from everloop.agents.agent import Agent
from everloop.agents.hooks import HookContext
from everloop.agents.plugins import Plugin, tools
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool, digest_of, listed, listed_spec_of, tool
from everloop.stores.views.interface import START
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import PreparedTask, PrepareTaskInput
from everloop.workflows.contract.events import Warned
from everloop.workflows.contract.messages import ToolsMessage, TranscriptMessage
from everloop.workflows.contract.tasks import Identity, TaskRef
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.memory.transcripts import MemoryTranscripts

CONTEXT = HookContext(task_id="t", context_id="c", owner="o", agent_id="agent")


@tool
async def read() -> str:
    """Read."""
    return "own"


WRITE = replace(read, name="write", description="Write.")


class Server(Plugin):
    """Lists what a test gives it."""

    offered: object = ()
    contexts: Sequence[HookContext] = ()

    async def list_tools(self, context: HookContext) -> Sequence[Tool]:
        self.contexts = [*self.contexts, context]
        if isinstance(self.offered, Exception):
            raise self.offered
        return self.offered  # pyright: ignore[reportReturnType] -- a plugin may return anything


def _server(offered: object, name: str = "server", priority: int = 0) -> Server:
    plugin = Server(name=name, priority=priority)
    plugin.offered = offered
    return plugin


class _Bench:
    """An agent whose tasks are prepared, on memory stores."""

    def __init__(self, *plugins: Plugin, transcripts: MemoryTranscripts | None = None) -> None:
        self.agent = Agent(id="agent", name="Agent", description="", plugins=[*plugins])
        self.views, self.transcripts = MemoryTaskViews(), transcripts or MemoryTranscripts()
        self.port = AgentCatalogue(
            AgentRegistry([self.agent]), self.views, self.transcripts, MemoryToolRecords()
        )
        self.task = TaskRef(
            task_id=str(uuid4()), run_id="run", context_id="c", owner="owner", agent_id="agent"
        )

    async def prepare(self, **settings: object) -> PreparedTask:
        call = PrepareTaskInput(task=self.task, position=0).model_copy(update=settings)
        return await ActivityEnvironment().run(self.port.prepare_task, call)

    async def warnings(self) -> list[str]:
        streamed = await self.views.read({self.task.task_id: START}, wait=0)
        return [each.event.text for each in streamed if isinstance(each.event, Warned)]

    async def cached(self, length: int) -> tuple[TranscriptMessage, ...] | None:
        return (await self.transcripts.open(self.task.task_id, "run", length)).messages


async def test_listed_tools_are_told_pinned_and_cached() -> None:
    """The model's list, in the transcript; what the workflow has to know, by name, with its plugin."""
    first, second = _server([WRITE], "first", priority=1), _server((replace(WRITE, name="x"),), "second")
    rig = _Bench(tools(read), first, Plugin(), second)
    prepared = await rig.prepare()
    message = ToolsMessage(tools=(listed(replace(WRITE, name="x")), listed(WRITE)))
    assert prepared.listed == message
    assert prepared.tools == {
        "x": listed_spec_of(replace(WRITE, name="x"), "second"),
        "write": listed_spec_of(WRITE, "first"),
    }
    assert prepared.tools["write"].digest == digest_of(WRITE)
    assert (prepared.agent, await rig.cached(1)) == (None, (message,))


async def test_a_plugin_knows_who_its_tools_are_for() -> None:
    """Some servers list for each user other tools."""
    plugin = _server([])
    rig, identity = _Bench(plugin), Identity(subject="ann")
    prepared = await rig.prepare(identity=identity)
    empty = ToolsMessage(tools=())
    assert (prepared.listed, prepared.tools, await rig.cached(1)) == (empty, {}, (empty,))
    assert [(context.owner, context.auth) for context in plugin.contexts] == [("owner", identity)]


async def test_tools_that_cannot_be_offered_are_left_out_with_a_warning() -> None:
    """Of one name the first counts, the agent's own before all; models take no strange names."""
    rig = _Bench(
        tools(read),
        _server([replace(read, description="Theirs."), WRITE, replace(WRITE, name="create_task")], "a"),
        _server(
            [
                replace(WRITE, description="Late."),
                replace(WRITE, name="of/it"),
                replace(WRITE, name="n" * 65),
            ],
            "b",
        ),
    )

    prepared = await rig.prepare()

    assert prepared.listed
    assert [each.description for each in prepared.listed.tools] == ["Write."]
    assert [warning.split(": ", 1) for warning in await rig.warnings()] == [
        ["the tool 'read' of the plugin 'a' is left out", "the agent has a tool of that name"],
        ["the tool 'create_task' of the plugin 'a' is left out", "the agent has a tool of that name"],
        [
            "the tool 'write' of the plugin 'b' is left out",
            "the plugin 'a' has listed one of that name before",
        ],
        [
            "the tool 'of/it' of the plugin 'b' is left out",
            "models take names of 1 to 64 letters, digits, '_' and '-'",
        ],
        [
            f"the tool '{'n' * 65}' of the plugin 'b' is left out",
            "models take names of 1 to 64 letters, digits, '_' and '-'",
        ],
    ]


async def test_tools_that_cannot_be_listed_now_are_asked_for_again() -> None:
    """The failure names the plugin; nothing is cached of the others."""
    rig = _Bench(_server([WRITE], "a"), _server(ConnectionError("refused"), "b"))
    with pytest.raises(ApplicationError, match="plugin 'b' failed in list_tools: ConnectionError") as failed:
        await rig.prepare()
    assert (failed.value.type, failed.value.non_retryable) == (failures.TOOLS_UNAVAILABLE, False)
    assert await rig.cached(1) is None


@pytest.mark.parametrize("offered", [None, "write", [WRITE, "read"]], ids=["nothing", "text", "mixed"])
async def test_a_list_of_something_else_fails_the_task(offered: object) -> None:
    """Asking again would bring the same."""
    with pytest.raises(
        ApplicationError, match="'server' failed in list_tools: it returned no list"
    ) as failed:
        await _Bench(_server(offered)).prepare()
    assert (failed.value.type, failed.value.non_retryable) == (failures.PLUGIN_FAILED, True)


async def test_a_plugin_that_hangs_is_given_up() -> None:
    """It may have to start a server, and keeps no activity for ever."""

    class Hanging(Plugin):
        async def list_tools(self, context: HookContext) -> Sequence[Tool]:
            await asyncio.Event().wait()
            return ()

    agent = Agent(id="agent", name="", description="", plugins=[Hanging()])
    with pytest.raises(ApplicationError, match="it did not finish within 0 s"):
        await list_task_tools(agent, CONTEXT, seconds=0)
