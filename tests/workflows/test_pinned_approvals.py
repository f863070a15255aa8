"""What people had to approve when the tools of a task were listed, they approve till the task ends."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from everloop import Plugin, guard, mcp
from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.messages import AssistantMessage, ToolCall
from everloop.workflows.contract.tasks import TaskState
from tests.support.fakes.ports import TASK_WORK, ScriptedModel, answer
from tests.support.fakes.real_tools import RealTools, an_agent
from tests.support.rigs.mcp_rig import SMALL_STDIO, Caller, asker
from tests.workflows.conftest import StartTask, asked_of_client, say, start_workflow, unique_queue, user

DESTROYS, READS = '{"destructiveHint": true}', '{"readOnlyHint": true}'


@dataclass
class ChangingServer:
    """An MCP server that says of its tool `erase` what a test lets it say, and a model that calls it."""

    folder: Path

    def says(self, hints: str) -> None:
        """Say so from now on, as soon as it is asked."""
        (self.folder / "hints").write_text(hints)

    def plugin(self) -> Plugin:
        """Return the server for one worker process, which starts it for itself."""
        return mcp(command=SMALL_STDIO, name="small", env={"HINTS": str(self.folder / "hints")})

    @property
    def erased(self) -> list[str]:
        ledger = self.folder / "ledger"
        return ledger.read_text().splitlines() if ledger.exists() else []

    def model(self, before: Callable[[], Awaitable[None]]) -> ScriptedModel:
        """Return a model that calls the tool, after something has happened since it was listed."""
        arguments = json.dumps({"ledger": str(self.folder / "ledger")})

        async def erase(_call: CallModelInput) -> AssistantMessage:
            await before()
            return AssistantMessage(tool_calls=(ToolCall(id="e", name="erase", arguments=arguments),))

        return ScriptedModel(erase, answer("done"))


@pytest.mark.parametrize(
    ("listed", "called", "asks_people"),
    [(DESTROYS, READS, True), (READS, DESTROYS, True), (READS, READS, False)],
    ids=["taken_back", "added", "never"],
)
async def test_an_approval_outlives_the_hint_that_it_came_from(
    start_task: StartTask, tmp_path: Path, listed: str, called: str, *, asks_people: bool
) -> None:
    """What a server said when its tools were listed counts, and what it says when one is called."""

    async def change() -> None:
        server.says(called)
        while (tool := await plugin.get_tool("erase", asker())) and tool.needs_approval != (
            called == DESTROYS
        ):
            await Caller(plugin).call("change")

    server = ChangingServer(tmp_path)
    server.says(listed)
    plugin = server.plugin()
    agent = an_agent("agent", plugin)
    ports = RealTools(server.model(change), agent)

    async with start_task(ports, agent.spec) as handle:
        if asks_people:
            (question,) = await asked_of_client(ports, handle)
            assert (question.call.name, question.approvers, server.erased) == ("erase", "owner", [])
            await say(handle, user("yes"))
        await handle.result()
    await plugin.close()

    asked = [status for status in ports.publish.statuses if status.state is TaskState.INPUT_REQUIRED]
    assert (len(asked), server.erased) == (int(asks_people), ["erased"])


@pytest.mark.parametrize(
    ("listed", "called", "guards"),
    [(DESTROYS, READS, []), (READS, READS, [guard(approve=["erase"])])],
    ids=["hint_taken_back", "guard_added"],
)
async def test_an_approval_outlives_the_worker_that_listed_the_tool(
    client: Client, tmp_path: Path, listed: str, called: str, guards: list[Plugin]
) -> None:
    """The next worker starts the server anew, which says something else; or it has another guard."""

    async def elsewhere(_call: CallModelInput) -> AssistantMessage:
        raise ApplicationError("not here", next_retry_delay=timedelta(milliseconds=100))

    async def nothing() -> None:
        """Change nothing any more."""

    server = ChangingServer(tmp_path)
    server.says(listed)
    listing, calling = server.plugin(), server.plugin()
    before, after = an_agent("agent", listing), an_agent("agent", calling, *guards)
    ports = RealTools(ScriptedModel(*[elsewhere] * 1000), before)
    queue = unique_queue()
    settings = WorkerSettings(task_queue=queue, shutdown_grace=0)

    async with running_workers(client, ports.wired(), settings, TASK_WORK):
        handle = await start_workflow(client, queue, before.spec)
        await ports.model.until_asked(1)
    await listing.close()
    server.says(called)
    ports = RealTools(server.model(nothing), after)
    async with running_workers(client, ports.wired(), settings, TASK_WORK):
        (question,) = await asked_of_client(ports, handle)
        erased = [*server.erased]
        await say(handle, user("yes"))
        await handle.result()
    await calling.close()

    assert (question.call.name, erased, server.erased) == ("erase", [], ["erased"])
