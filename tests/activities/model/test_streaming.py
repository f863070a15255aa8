"""Publishing of deltas: the first at once, later ones together, in order, without harm to the call."""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from uuid import uuid4

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.activities.model.artifact_streams import ArtifactStreams
from everloop.activities.model.call_events import DeltaPublisher
from everloop.activities.model.drafts import ResponseDraft
from everloop.activities.model.reply import ArgumentsDelta
from everloop.agents.artifact_tools import artifacts
from everloop.models.interface import TextDelta, ThoughtDelta
from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import ArtifactChunk, TaskEvent, Thought
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import TaskRef
from tests.support.stores import database, new_artifacts


class Recorder:
    """A publisher in which each publish waits until the test ends it, with success or an error."""

    def __init__(self) -> None:
        self._published: asyncio.Queue[list[tuple[str, str]]] = asyncio.Queue()
        self._outcomes: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def publish(self, events: Sequence[TaskEvent]) -> None:
        self._published.put_nowait([describe(event) for event in events])
        if error := await self._outcomes.get():
            raise error

    async def next(self) -> list[tuple[str, str]]:
        """Return the events of the next publish, which stays open."""
        return await self._published.get()

    def end(self, error: Exception | None = None) -> None:
        """End the open publish."""
        self._outcomes.put_nowait(error)


def describe(event: TaskEvent) -> tuple[str, str]:
    """Return the draft and index of a chunk or the id of a thought, and the text."""
    if isinstance(event, Thought):
        return event.thought_id, event.text
    assert isinstance(event, ArtifactChunk)
    assert isinstance(event.part, TextPart)
    return f"{event.attempt}/{event.index}", event.part.text


def publisher_for(recorder: Recorder) -> DeltaPublisher:
    """Return the publisher of a first attempt."""
    return DeltaPublisher(recorder.publish, ResponseDraft(position=1, attempt=1), streams(), iteration=1)


def streams() -> ArtifactStreams:
    """Return the artifacts of a first attempt; `create_artifact` streams."""
    task = TaskRef(task_id="t", run_id="r", context_id="c", owner="o", agent_id="a")
    tools = {tool.name: tool for tool in artifacts("granular").tools}
    publisher = ArtifactPublisher(new_artifacts(), task, 1, TaskViews(database()))
    return ArtifactStreams(publisher, "c", 1, 1, tools)


async def test_what_comes_during_a_publish_goes_out_together() -> None:
    """Deltas that arrive during a publish are merged and published together, in order."""
    recorder = Recorder()
    async with publisher_for(recorder) as publisher:
        publisher.add([TextDelta("a")])
        assert await recorder.next() == [("10/0", "a")]
        publisher.add([TextDelta("b")])
        publisher.add([TextDelta("c"), ThoughtDelta("d", "x"), ThoughtDelta("e", "x"), TextDelta("f")])
        recorder.end()
        assert await recorder.next() == [("10/1", "bc"), ("x", "de"), ("10/2", "f")]
        recorder.end()


async def test_the_rest_is_given_back() -> None:
    """A publish in progress may end; unpublished deltas are returned for the last publish of the call."""
    recorder = Recorder()
    async with publisher_for(recorder) as publisher:
        publisher.add([TextDelta("a")])
        await recorder.next()
        publisher.add([ThoughtDelta("b"), TextDelta("c")])
        stopping = asyncio.create_task(publisher.stop())
        recorder.end()
        assert await stopping == [ThoughtDelta("b"), TextDelta("c")]


async def test_a_failed_publish_is_made_up_for() -> None:
    """After a failed publish, thoughts are published again, and the text from its start in a new draft."""
    recorder = Recorder()
    async with publisher_for(recorder) as publisher:
        publisher.add([ThoughtDelta("a"), TextDelta("b")])
        assert await recorder.next() == [("", "a"), ("10/0", "b")]
        publisher.add([TextDelta("c")])
        recorder.end(RedisConnectionError())
        assert await recorder.next() == [("", "a"), ("11/0", "bc")]
        recorder.end()


async def test_artifacts_go_out_like_the_answer() -> None:
    """Artifacts are published like the answer, piece by piece; after a failure they start again."""
    recorder, (head, *pieces) = Recorder(), ('{"artifact_id": "a", "content": "x', "y", 'z"}')
    async with publisher_for(recorder) as publisher:
        publisher.add([ArgumentsDelta(head, 0, "create_artifact")])
        assert await recorder.next() == [("10/0", "x")]
        publisher.add([ArgumentsDelta(pieces[0], 0, "create_artifact"), TextDelta("b")])
        recorder.end()
        assert await recorder.next() == [("10/0", "b"), ("10/1", "y")]
        publisher.add([ArgumentsDelta(pieces[1], 0, "create_artifact")])
        recorder.end(RedisConnectionError())
        assert await recorder.next() == [("11/0", "xyz")]
        recorder.end()


@pytest.mark.parametrize("ends", ["fails", "stops"])
async def test_a_call_can_end_at_any_moment(redis_url: str, ends: str) -> None:
    """A call can end at any stage of a publish, although Redis' client may lose a cancellation."""
    async with connect_redis(redis_url) as redis:
        publish = partial(TaskViews(redis).publish, str(uuid4()), "run")
        for turns_of_the_loop in range(30):
            draft = ResponseDraft(position=1, attempt=1)
            publisher = DeltaPublisher(publish, draft, streams(), iteration=1)
            with contextlib.suppress(LookupError):
                async with publisher:
                    publisher.add([TextDelta("a")])
                    for _ in range(turns_of_the_loop):
                        await asyncio.sleep(0)
                    if ends == "fails":
                        raise LookupError
                    await publisher.stop()


async def test_a_defect_is_not_hidden() -> None:
    """Errors other than those of the stores fail the call."""
    recorder = Recorder()
    async with publisher_for(recorder) as publisher:
        publisher.add([TextDelta("a")])
        await recorder.next()
        recorder.end(LookupError())
        with pytest.raises(LookupError):
            await publisher.stop()
