"""The shown form of artifacts: inline content or a link."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobCorruptError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Append, Complete, Create, NewPart
from everloop.stores.artifacts.rendering import (
    RENDERED_BYTES,
    RENDERED_PART_BYTES,
    render_artifact,
    with_artifacts,
)
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.messages import DataPart, FilePart, Part, StoredPartRef, TextPart
from everloop.workflows.contract.names import context_key
from tests.support.stores import new_artifacts
from tests.unit.gateway.rendered_tasks import view

ID = "report"


def file(content: bytes, media_type: str, filename: str = "") -> NewPart:
    return NewPart("file", content, media_type, filename)


def text(content: str, media_type: str = "") -> NewPart:
    return NewPart("text", content.encode(), media_type)


def link(size: int | None, media_type: str, index: int = 0, filename: str = "") -> FilePart:
    stored = StoredPartRef(artifact_id=ID, index=index)
    return FilePart(media_type=media_type, filename=filename, size=size, stored=stored)


def small(media_type: str, content: str, size: int) -> FilePart:
    return FilePart(media_type=media_type, content=content, size=size)


LONG = "x" * RENDERED_BYTES
WIDE = b"\0" * RENDERED_PART_BYTES
NUMBERS = b"[" + b"1," * (RENDERED_PART_BYTES // 2) + b"1]"

EXACT = b'{"a":%d}\n' % (2**53 + 1)
HUGE = b'{"a":1%s}\n' % (b"0" * 400)
NESTED = b'{"a":%s%s}\n' % (b"[" * 31, b"]" * 31)

WHOLE: dict[str, tuple[tuple[NewPart, ...], tuple[Part, ...]]] = {
    "a text": ((text("a"),), (TextPart(text="a"),)),
    "a number beyond a double": ((NewPart("data", HUGE),), (link(len(HUGE), "application/json"),)),
    "a whole number that no double is": ((NewPart("data", EXACT),), (link(len(EXACT), "application/json"),)),
    "data of too many levels": ((NewPart("data", NESTED),), (link(len(NESTED), "application/json"),)),
    "plain texts are joined": (
        (text("a", "text/markdown"), text("b")),
        (TextPart(text="ab", media_type="text/markdown"),),
    ),
    "more than a megabyte of text": ((text(LONG + "x"),), (link(RENDERED_BYTES + 1, "text/plain"),)),
    "a text after a megabyte": (
        (text(LONG, "text/x"), text("a", "text/y")),
        (TextPart(text=LONG, media_type="text/x"), link(1, "text/y", 1)),
    ),
    "data": ((NewPart("data", b'{"a":1}'),), (DataPart(data={"a": 1}),)),
    "much data": ((NewPart("data", NUMBERS),), (link(len(NUMBERS), "application/json"),)),
    "rows": ((NewPart("rows", b'{"a":1}\n{"a":2}\n'),), (DataPart(data=[{"a": 1}, {"a": 2}]),)),
    "no rows": ((NewPart("rows", b"", "application/x-ndjson"),), (DataPart(data=[]),)),
    "many rows": ((NewPart("rows", b'{"a":1}\n' * 20_000),), (link(160_000, "application/x-ndjson"),)),
    "a text file": ((file(b"a", "text/csv"),), (TextPart(text="a", media_type="text/csv"),)),
    "JSON": (
        (file(b"{}", "application/json; x=1"),),
        (TextPart(text="{}", media_type="application/json; x=1"),),
    ),
    "a text file in another encoding": ((file(b"\xe9", "text/plain"),), (small("text/plain", "6Q==", 1),)),
    "a long one": ((file(b"\xe9" * RENDERED_BYTES, "text/plain"),), (link(RENDERED_BYTES, "text/plain"),)),
    "a binary file": ((file(b"a", "image/png"),), (small("image/png", "YQ==", 1),)),
    "a large binary file": (
        (file(WIDE + b"\0", "image/png"),),
        (link(RENDERED_PART_BYTES + 1, "image/png"),),
    ),
}


@pytest.fixture
def artifacts(redis: Redis) -> Artifacts:
    return new_artifacts(TaskViews(redis))


@pytest.mark.parametrize(("parts", "shown"), WHOLE.values(), ids=WHOLE.keys())
async def test_what_is_small_or_text_is_shown_itself(
    artifacts: Artifacts, parts: tuple[NewPart, ...], shown: tuple[Part, ...]
) -> None:
    """Content is inline up to a megabyte in all, and 100 KB without text; the rest is a link with a size."""
    stored = await artifacts.apply("c", ID, Create("task", parts, "Report", "What it is", complete=True))

    found = await render_artifact(artifacts, stored)

    assert found.parts == shown
    assert (found.artifact_id, found.name, found.description) == (ID, "Report", "What it is")
    assert (found.complete, found.failed) == (True, False)


BUILDING: dict[str, tuple[NewPart, Part]] = {
    "text": (text("a"), TextPart(text="a")),
    "half a character waits": (file(b"a\xc3", "text/plain"), TextPart(text="a", media_type="text/plain")),
    "a binary file": (file(b"a", "image/png"), link(None, "image/png")),
    "a long text": (text(LONG + "x"), link(None, "text/plain")),
}


@pytest.mark.parametrize(("part", "shown"), BUILDING.values(), ids=BUILDING.keys())
async def test_while_it_is_building_no_size_is_known(
    artifacts: Artifacts, part: NewPart, shown: Part
) -> None:
    """A binary file in progress is a link without a size."""
    stored = await artifacts.apply("c", ID, Create("task", (part,)))

    assert (await render_artifact(artifacts, stored)).parts == (shown,)


async def test_half_a_character_at_the_end_is_no_text(artifacts: Artifacts) -> None:
    """A text that ends within a character is binary once it is complete."""
    await artifacts.apply("c", ID, Create("task", (file(b"a", "text/plain"),)))
    await artifacts.apply("c", ID, Append(b"\xc3"))
    stored = await artifacts.apply("c", ID, Complete())

    assert (await render_artifact(artifacts, stored)).parts == (small("text/plain", "YcM=", 2),)


async def test_content_that_is_lost_is_a_link(redis: Redis) -> None:
    """Lost content is a link, so that a view can be restored and a reader of the link gets the error."""

    class Damaged(Artifacts):
        async def read_part(
            self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            if index == 0:
                raise BlobCorruptError("blob")
            async for piece in super().read_part(context_id, artifact_id, index, start=start, end=end):
                yield piece

    artifacts = Damaged(redis, RedisBlobs(redis))
    stored = await artifacts.apply("c", ID, Create("task", (text("a"), text("b")), complete=True))

    assert (await render_artifact(artifacts, stored)).parts == (link(1, "text/plain"), TextPart(text="b"))


async def test_what_has_no_room_in_a_view_is_a_link(artifacts: Artifacts) -> None:
    """Artifacts beyond the view's room are links."""
    known, content = view(), b"x" * 1_000
    for artifact_id in ("a", "b", "c"):
        change = Create(task_id=known.task_id, parts=(NewPart(kind="text", content=content),), complete=True)
        await artifacts.apply(context_key(known.owner, known.context_id), artifact_id, change)
    whole = await with_artifacts(known, artifacts, 3_000)
    assert sorted(each.artifact_id for each in whole.artifacts) == ["a", "b", "c"]
    kinds = [type(part) for each in whole.artifacts for part in each.parts]
    assert kinds == [TextPart, TextPart, FilePart]
    assert len(whole.model_dump_json()) < 3_000 + 500
