"""Artifacts that a model call writes about: shown while their calls are written, and right at its end."""

import asyncio
from collections.abc import Sequence

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.failures import MODEL_FAILURES
from everloop.activities.tools.call import AgentTools, ToolStores
from everloop.agents.registry import AgentRegistry
from everloop.stores.artifacts.rendering import render_artifact
from everloop.stores.leases import Lease
from everloop.stores.transcripts import RedisTranscripts
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.events import ArtifactChunk, TaskEvent, ToolCalled
from everloop.workflows.contract.messages import AssistantMessage, TextPart, ToolCall
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskState
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.memory.secrets import MemorySecrets
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.rigs.artifact_writer_rig import (
    BASE,
    WRITER,
    arguments,
    begin_doc,
    fail,
    fragments,
    is_chunk,
    shown,
    shown_parts,
    text,
)
from tests.support.rigs.model_rig import model_bench
from tests.support.servers.scripted_openai import (
    Answer,
    Refusal,
    Reply,
    ScriptedOpenAI,
)


@pytest.mark.parametrize("append", [False, True], ids=["creates", "appends"])
async def test_an_artifact_streams_while_its_call_is_written(redis_url: str, *, append: bool) -> None:
    """Subscribers read it before the reply is over; each piece comes once, before the call is told."""
    gate, base = asyncio.Event(), BASE if append else ""
    async with (
        Redis.from_url(redis_url, decode_responses=True) as redis,
        ScriptedOpenAI([Reply(fragments("Half a poem.", gate, append=append))]) as provider,
        model_bench(provider, RedisTaskViews(redis), RedisTranscripts(redis), agent=WRITER) as bench,
    ):
        if append:
            await begin_doc(bench)
            await bench.until(is_chunk)
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)
        assert await text(bench) == f"{base}Half a"
        gate.set()
        reply = await running

        assert reply.tool_calls[0].arguments == arguments("Half a poem.", append=append)
        events = await bench.events()
        chunks = [event for event in events if isinstance(event, ArtifactChunk)]
        assert [chunk.part for chunk in chunks][-2:] == [TextPart(text="Half a"), TextPart(text=" poem.")]
        assert (chunks[-1].position, chunks[-1].attempt, chunks[-1].index) == (1, 10, 1)
        assert chunks[-2].mode == ("extend" if append else "draft")
        assert events.index(chunks[-1]) < next(n for n, e in enumerate(events) if isinstance(e, ToolCalled))
        artifact = await shown(bench)
        assert artifact
        assert (artifact.name, await text(bench), artifact.complete) == ("Doc", f"{base}Half a poem.", False)
        assert await bench.response() is None


@pytest.mark.parametrize("append", [False, True], ids=["creates", "appends"])
async def test_a_retry_replaces_the_draft(*, append: bool) -> None:
    """The attempt before was cut in the middle of the arguments; nothing of it is left, nor doubled."""
    cut = [Reply(fragments("Lost words.", append=append)[:count], ending="cut") for count in (1, 2, 3)]
    script: list[Answer] = [*cut, Reply(fragments("Found.", append=append))]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=WRITER) as bench:
        if append:
            await begin_doc(bench)
        for attempt in (1, 2, 3):
            await fail(bench, attempt=attempt)
        await bench.run(attempt=4)

        assert await text(bench) == f"{BASE if append else ''}Found."


@pytest.mark.parametrize("append", [False, True], ids=["creates", "appends"])
async def test_the_last_failure_takes_the_draft_back(*, append: bool) -> None:
    """The call will never run: subscribers see what is stored."""
    script = [Reply(fragments("Lost words.", append=append)[:2], ending="cut")]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=WRITER) as bench:
        if append:
            await begin_doc(bench)
        failure = await fail(bench, failures=MODEL_FAILURES - 1)

        assert failure.non_retryable
        assert await text(bench) == (BASE if append else "")


async def test_a_refusal_takes_the_draft_of_an_earlier_attempt_back() -> None:
    """The attempt that failed for good has written nothing itself."""
    script: list[Answer] = [Reply(fragments("Lost words.")[:2], ending="cut"), Refusal(401)]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=WRITER) as bench:
        await fail(bench, attempt=1)
        shown_first = await text(bench)
        assert shown_first
        assert "Lost w".startswith(shown_first)
        await fail(bench, attempt=2)

        assert await text(bench) in {"", None}


OTHER = ToolCall(id="a", name="artifact_update", arguments=arguments("Theirs.", artifact_id="other"))
SAME = ToolCall(id="a", name="artifact_update", arguments=arguments("Theirs."))


@pytest.mark.parametrize("winner", [(SAME,), (OTHER,), ()], ids=["same", "other", "answer"])
async def test_the_first_reply_stored_counts(winner: tuple[ToolCall, ...]) -> None:
    """When two attempts overlap, the artifacts of the reply that counts are shown, and no others."""
    gate = asyncio.Event()
    theirs = AssistantMessage(tool_calls=winner, text="" if winner else "Theirs.")
    script = [Reply(fragments("Ours.", gate))]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=WRITER) as bench:
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, theirs)
        gate.set()

        assert await running == theirs
        assert await text(bench) == ("Theirs." if winner == (SAME,) else "")
        assert await text(bench, "other") == ("Theirs." if winner == (OTHER,) else None)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_a_stored_reply_shows_its_artifacts(count: int) -> None:
    """The attempt that stored it died before, or in the midst of, its end; the next one asks nobody."""
    steps = fragments("Whole poem.")[:count]
    whole = ToolCall(id="a", name="artifact_update", arguments=arguments("Whole poem."))
    script = [Reply(steps, ending="cut")]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=WRITER) as bench:
        await fail(bench, attempt=1)
        stored = AssistantMessage(tool_calls=(whole,))
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, stored)

        assert await bench.run(attempt=2) == stored

        assert len(provider.requests) == 1
        assert await text(bench) == "Whole poem."


async def test_a_finished_call_that_runs_again_says_nothing_twice() -> None:
    """The worker died before Temporal heard of the end."""
    script = [Reply(fragments("Whole poem."))]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=WRITER) as bench:
        await bench.run(attempt=1)
        before = [event for event in await bench.events() if isinstance(event, ArtifactChunk)]
        await bench.run(attempt=2)

        chunks = [event for event in await bench.events() if isinstance(event, ArtifactChunk)]
        assert [chunk for chunk in chunks if chunk.artifact_id == "doc"] == before
        assert await text(bench) == "Whole poem."


@pytest.mark.parametrize("append", [False, True], ids=["creates", "appends"])
@pytest.mark.parametrize("lost", [1, 2])
async def test_a_publish_that_failed_unseen_leaves_no_scar(lost: int, *, append: bool) -> None:
    """It took effect though its answer was lost; the content stands there once in the end."""
    views, gate = LossyViews(), asyncio.Event()
    script = [Reply(fragments("Half a poem.", gate, append=append))]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, views, agent=WRITER) as bench:
        if append:
            await begin_doc(bench)
            await bench.until(is_chunk)
        views.loses_answer_in = lost + 1
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)
        gate.set()
        await running

        assert await text(bench) == f"{BASE if append else ''}Half a poem."


async def test_an_artifact_store_that_is_away_costs_the_stream_only() -> None:
    """What the call appends is seen when it runs; the reply itself does not wait."""
    script = [Reply(["Text ", *fragments("More.", append=True)])]
    async with (
        ScriptedOpenAI(script) as provider,
        model_bench(provider, artifacts=AwayArtifacts(), agent=WRITER) as bench,
    ):
        reply = await bench.run()

        assert reply.tool_calls
        assert await text(bench) is None


@pytest.mark.parametrize("append", [False, True], ids=["creates", "appends"])
async def test_a_call_that_runs_says_nothing_twice(*, append: bool) -> None:
    """What the model's draft has shown is stored, and only its end is told."""
    views = MemoryTaskViews()
    script = [Reply(fragments("Half a poem.", append=append))]
    async with (
        ScriptedOpenAI(script) as provider,
        model_bench(provider, views, artifacts=MemoryArtifacts(views), agent=WRITER) as bench,
    ):
        if append:
            await begin_doc(bench)
        (call,) = (await bench.run()).tool_calls
        before = [event for event in await bench.events() if isinstance(event, ArtifactChunk)]
        stores = ToolStores(views, bench.transcripts, MemoryToolRecords(), MemorySecrets(), bench.artifacts)
        run = RunToolInput(task=bench.task, call=call, position=2, reply=1, timeout=5)
        await ActivityEnvironment().run(AgentTools(AgentRegistry([WRITER]), stores).run_tool, run)

        chunks = [event for event in await bench.events() if isinstance(event, ArtifactChunk)]
        assert [(chunk.mode, chunk.part) for chunk in chunks[len(before) :]] == [
            ("extend", TextPart(text=""))
        ]
        stored = await bench.artifacts.get_artifact(
            context_key(bench.task.owner, bench.task.context_id), "doc"
        )
        assert (await render_artifact(bench.artifacts, stored)).parts == (await shown_parts(bench))


class LossyViews(MemoryTaskViews):
    """Loses the answer of one publish, counted from the one after `loses_answer_in` is set."""

    loses_answer_in = 0

    async def publish(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Sequence[TaskState]:
        self.loses_answer_in -= 1
        taken = await super().publish(task_id, run_id, events, lease)
        if self.loses_answer_in == 0:
            raise RedisConnectionError
        return taken


class AwayArtifacts(MemoryArtifacts):
    """Does not answer."""

    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        raise RedisConnectionError
