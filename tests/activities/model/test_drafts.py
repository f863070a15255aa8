"""Artifacts of a model call: streamed while their calls are written, and reconciled at its end."""

import asyncio

import pytest
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.tool_call import AgentTools
from everloop.agents.registry import AgentRegistry
from everloop.stores.artifacts.rendering import render_artifact
from everloop.stores.log.log_store import TaskViews
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.events import ArtifactChunk, ToolCalled
from everloop.workflows.contract.messages import AssistantMessage, TextPart, ToolCall
from tests.support.fakes.failing import failing
from tests.support.rigs.artifacts.writer_rig import BASE, WRITER, arguments, begin_doc, fragments
from tests.support.rigs.model_rig import model_rig
from tests.support.servers.scripted_openai import Reply
from tests.support.stores import database, new_artifacts

creates_and_appends = pytest.mark.parametrize("append", [False, True], ids=["creates", "appends"])


@creates_and_appends
async def test_an_artifact_streams_while_its_call_is_written(*, append: bool) -> None:
    """An artifact is streamed before its reply ends, each piece once, and before the call is published."""
    gate, base = asyncio.Event(), BASE if append else ""
    script = [Reply(fragments("Half a poem.", gate, append=append))]
    async with model_rig(script, agent=WRITER) as rig:
        if append:
            await begin_doc(rig)
        running = await rig.begin()
        assert await rig.text() == f"{base}Half a"
        gate.set()
        reply = await running

        assert reply.tool_calls[0].arguments == arguments("Half a poem.", append=append)
        events, chunks = await rig.events(), await rig.events_of(ArtifactChunk)
        assert [chunk.part for chunk in chunks][-2:] == [TextPart(text="Half a"), TextPart(text=" poem.")]
        assert (chunks[-1].position, chunks[-1].attempt, chunks[-1].index) == (1, 10, 1)
        assert chunks[-2].mode == ("extend" if append else "draft")
        assert events.index(chunks[-1]) < next(n for n, e in enumerate(events) if isinstance(e, ToolCalled))
        artifact = await rig.artifact()
        assert artifact
        assert (artifact.name, await rig.text(), artifact.complete) == ("Doc", f"{base}Half a poem.", False)
        assert await rig.answer() is None


OTHER = ToolCall(id="a", name="artifact_update", arguments=arguments("Theirs.", artifact_id="other"))
SAME = ToolCall(id="a", name="artifact_update", arguments=arguments("Theirs."))


@pytest.mark.parametrize("winner", [(SAME,), (OTHER,), ()], ids=["same", "other", "answer"])
async def test_the_first_reply_stored_counts(winner: tuple[ToolCall, ...]) -> None:
    """Of overlapping attempts, only the artifacts of the stored reply are shown."""
    gate = asyncio.Event()
    theirs = AssistantMessage(tool_calls=winner, text="" if winner else "Theirs.")
    async with model_rig([Reply(fragments("Ours.", gate))], agent=WRITER) as rig:
        running = await rig.begin()
        await rig.store_reply(theirs)
        gate.set()
        assert await running == theirs
        assert await rig.text() == ("Theirs." if winner == (SAME,) else "")
        assert await rig.text("other") == ("Theirs." if winner == (OTHER,) else None)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_a_stored_reply_shows_its_artifacts(count: int) -> None:
    """A retry shows the artifacts of a stored reply without a model call, wherever the first attempt died."""
    whole = ToolCall(id="a", name="artifact_update", arguments=arguments("Whole poem."))
    stored = AssistantMessage(tool_calls=(whole,))
    async with model_rig([Reply(fragments("Whole poem.")[:count], ending="cut")], agent=WRITER) as rig:
        await rig.fail(attempt=1)
        await rig.store_reply(stored)
        assert await rig.run(attempt=2) == stored
        assert len(rig.provider.requests) == 1
        assert await rig.text() == "Whole poem."


async def test_an_artifact_store_that_is_away_costs_the_stream_only() -> None:
    """Without the artifact store, content is not streamed but shown when its call runs.

    The reply does not wait.
    """
    script = [Reply(["Text ", *fragments("More.", append=True)])]
    async with model_rig(script, artifacts=failing(new_artifacts(), "get_artifact"), agent=WRITER) as rig:
        assert (await rig.run()).tool_calls
        assert await rig.text() is None


@creates_and_appends
async def test_a_call_that_runs_says_nothing_twice(*, append: bool) -> None:
    """A call publishes only the end of content that the model's draft has shown."""
    views = TaskViews(database())
    script = [Reply(fragments("Half a poem.", append=append))]
    async with model_rig(script, views, artifacts=new_artifacts(views), agent=WRITER) as rig:
        if append:
            await begin_doc(rig)
        (call,) = (await rig.run()).tool_calls
        before = await rig.events_of(ArtifactChunk)
        stores = (views, rig.transcripts, ToolRecords(database()), Secrets(database()), rig.artifacts)
        run = RunToolInput(task=rig.task, call=call, position=2, reply=1, timeout=5)
        await ActivityEnvironment().run(AgentTools(AgentRegistry([WRITER]), *stores).run_tool, run)
        chunks = (await rig.events_of(ArtifactChunk))[len(before) :]
        assert [(chunk.mode, chunk.part) for chunk in chunks] == [("extend", TextPart(text=""))]
        stored = await rig.artifacts.get_artifact(rig.context, "doc")
        shown = await rig.artifact()
        assert shown
        assert (await render_artifact(rig.artifacts, stored)).parts == shown.parts
