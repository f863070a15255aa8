"""Recall from the context of a task, and additions to it."""

from collections.abc import Callable

from temporalio.client import Client

from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.agent_settings import Compaction, Memory
from everloop.workflows.contract.calls import SaveContextInput, SaveContextResult
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.tasks import AgentSpec, TaskState, ToolSpec
from tests.support.fakes.ports import (
    TASK_WORK,
    FakePorts,
    RecordingContext,
    ScriptedModel,
    answer,
    asks,
    asks_writer,
    fails,
)
from tests.workflows.conftest import StartTask, failure_of, run, start_workflow, unique_queue, user

MEMORY = Memory(max_messages=4, strategy="summary")
AGENT = AgentSpec(id="agent", memory=MEMORY)
DECIDING = AgentSpec(id="agent", memory=MEMORY, routing="auto")


def recalling(model: ScriptedModel) -> FakePorts:
    ports = FakePorts(model)
    ports.context = RecordingContext(user("What is 2 + 1?"), AssistantMessage(text="Three."))
    return ports


async def test_a_task_recalls_its_context_and_adds_to_it(start_task: StartTask) -> None:
    """The transcript begins with the conversation; only new messages are stored, with the last status."""
    ports = recalling(ScriptedModel(asks(("a", "x")), answer("Four.")))
    async with start_task(ports, AGENT) as handle:
        await handle.result()
        page = await handle.query(AgentTask.transcript)
    (loaded,), (saved,) = ports.context.loaded, ports.publish.remembered
    assert loaded.memory == saved.memory == MEMORY
    assert [message.role for message in page.messages[:3]] == ["user", "assistant", "user"]
    assert ports.model.calls[0].length == 3
    assert (saved.first, saved.length) == (2, len(page.messages))
    assert ports.context.saved == []


async def test_a_context_of_its_own_is_not_recalled(client: Client) -> None:
    """Without a context id of the client, the conversation is empty."""
    ports, queue = recalling(ScriptedModel(answer("Four."))), unique_queue()
    own = {"context_id": names.derive_context_id(queue)}
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue), TASK_WORK):
        handle = await start_workflow(client, queue, AGENT, changes=own)
        await handle.result()
    assert ports.context.loaded == []
    assert len(ports.publish.remembered) == 1


async def test_an_agent_without_memory_recalls_and_keeps_nothing(start_task: StartTask) -> None:
    ports = recalling(ScriptedModel(answer("Four.")))
    await run(start_task(ports, AgentSpec(id="agent")))
    assert (ports.context.loaded, ports.publish.remembered, ports.context.saved) == ([], [], [])


async def test_an_answer_at_once_is_kept(start_task: StartTask) -> None:
    """No status carries it; it is stored before the answer is returned."""
    ports = recalling(ScriptedModel(answer("Four.")))
    await run(start_task(ports, DECIDING))
    (saved,) = ports.context.saved
    assert (saved.first, saved.length, saved.memory) == (2, 4, MEMORY)
    assert ports.publish.remembered == []


async def test_compaction_keeps_what_the_task_is_about(start_task: StartTask) -> None:
    """A task that recalls a conversation keeps its own first message, not the oldest one."""
    too_long = fails(failures.CONTEXT_TOO_LONG, "too long")
    ports = recalling(ScriptedModel(*(asks((f"c{n}", "x")) for n in range(4)), too_long, answer("done")))
    await run(start_task(ports, AGENT.model_copy(update={"compaction": Compaction()})))
    (compacted,) = ports.model.compactions
    assert compacted.first == 2
    assert compacted.end > 3


async def test_what_fails_is_not_kept(start_task: StartTask) -> None:
    refused = fails(failures.MODEL_REFUSED, "no such model")
    ports = recalling(ScriptedModel(refused))
    async with start_task(ports, AGENT) as handle:
        await failure_of(handle)
    assert ports.publish.remembered == []


def lost_once() -> Callable[[SaveContextInput], SaveContextResult]:
    """The cache is empty when the conversation is stored for the first time."""
    lost = [fails(failures.TRANSCRIPT_MISSING, "the cache is empty")]

    def remember(_: SaveContextInput) -> SaveContextResult:
        if lost:
            raise lost.pop()
        return SaveContextResult()

    return remember


async def test_a_lost_cache_is_filled_again_before_it_is_kept(start_task: StartTask) -> None:
    """The last status waits until the conversation is stored, and is published once."""
    ports = recalling(ScriptedModel(answer("Four.")))
    ports.publish.on_remember = lost_once()
    await run(start_task(ports, AGENT))
    assert [(stored.start, len(stored.messages)) for stored in ports.transcript.stored] == [(0, 4)]
    assert len(ports.publish.remembered) == 2
    assert [status.state for status in ports.publish.statuses] == [TaskState.COMPLETED]


async def test_a_sub_agent_knows_only_what_it_is_asked(start_task: StartTask) -> None:
    """Its task is in the context of the client, whose conversation it does not read."""
    ports = recalling(ScriptedModel(asks_writer("w"), answer("A poem."), answer("done")))
    ports.agents.spec = AGENT
    agent = AGENT.model_copy(update={"tools": {"writer": ToolSpec(agent="writer")}})
    await run(start_task(ports, agent))
    assert [loaded.task.task_id for loaded in ports.context.loaded] == [ports.model.calls[0].task.task_id]
    assert [saved.task.task_id for saved in ports.publish.remembered] == [ports.model.calls[0].task.task_id]


async def test_a_cache_that_stays_lost_costs_the_conversation_alone(start_task: StartTask) -> None:
    """The answer exists: the client gets the end."""

    def lost(_: SaveContextInput) -> SaveContextResult:
        raise fails(failures.TRANSCRIPT_MISSING, "the cache is empty")

    ports = recalling(ScriptedModel(answer("Four.")))
    ports.publish.on_remember = lost
    result = await run(start_task(ports, AGENT))
    assert result.state is TaskState.COMPLETED
    assert [status.state for status in ports.publish.statuses] == [TaskState.COMPLETED]
