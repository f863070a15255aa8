"""Drafts of artifacts: their chunks and their content."""

import pytest
from redis.asyncio import Redis

from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import FINAL_ATTEMPT, ArtifactChunk
from everloop.workflows.contract.messages import DataPart, FilePart, Part, StoredPartRef, TextPart
from tests.stores.examples import (
    after,
    artifact,
    chunk,
    created,
    data,
    published,
    stream_of,
    submitted,
    view_of,
)


def extension(base: str) -> ArtifactChunk:
    return chunk("b", position=1, mode="extend").model_copy(update={"base": base})


STORED = chunk("a").model_copy(update={"version": "7"})
ALL = chunk("b", position=1, mode="extend", last=True).model_copy(update={"content": (TextPart(text="xb"),)})
A, WHOLE, BROKEN = chunk("a"), chunk("a", last=True), chunk("a", failed=True)
# The content, the number of accepted chunks, and the chunks.
DRAFTS: dict[str, tuple[str | None, int, list[ArtifactChunk]]] = {
    "chunks append in order": ("ab", 2, [A, chunk("b", index=1)]),
    "a repeated chunk is dropped": ("ab", 2, [A, A, chunk("b", index=1)]),
    "a gap is dropped": ("a", 1, [A, chunk("c", index=2)]),
    "a draft needs its beginning": (None, 0, [chunk("b", index=1)]),
    "a later attempt replaces": ("c", 3, [A, chunk("b", index=1), chunk("c", attempt=2)]),
    "an earlier attempt is dropped": ("a", 1, [chunk("a", attempt=2), chunk("b"), chunk("c", index=1)]),
    "a later position replaces": ("b", 2, [chunk("a", attempt=3), chunk("b", position=2)]),
    "an earlier position is dropped": ("a", 1, [chunk("a", position=2), chunk("b", position=1, attempt=9)]),
    "a later position replaces what was complete": ("b", 2, [WHOLE, chunk("b", position=2)]),
    "a complete position stays": ("a", 1, [WHOLE, chunk("b", attempt=FINAL_ATTEMPT)]),
    "a complete draft takes no more": ("a", 1, [WHOLE, chunk("b", index=1)]),
    "the workflow completes a draft": ("abc", 2, [A, chunk("abc", attempt=FINAL_ATTEMPT, last=True)]),
    "an extension keeps what stands there": ("ab", 2, [A, chunk("b", position=1, mode="extend")]),
    "an extension is continued": (
        "abc",
        3,
        [A, chunk("b", position=1, mode="extend"), chunk("c", position=1, index=1)],
    ),
    "an extension of a later attempt": ("ab", 2, [A, chunk("b", attempt=2, mode="extend")]),
    "an extension that is repeated is dropped": ("ab", 2, [A, *[chunk("b", attempt=2, mode="extend")] * 2]),
    "what was extended is not continued": (
        "ab",
        2,
        [A, chunk("b", attempt=2, mode="extend"), chunk("x", index=1)],
    ),
    "an extension needs something to extend": (None, 0, [chunk("a", mode="extend")]),
    "the version that an extension names is extended": ("ab", 2, [STORED, extension("7")]),
    "no other version is extended": ("a", 1, [STORED, extension("6")]),
    "an artifact without a version is not extended as one": ("a", 1, [A, extension("7")]),
    "content replaces what stands there": ("xb", 2, [A, ALL]),
    "what is complete is not extended": ("a", 1, [WHOLE, chunk("b", position=1, mode="extend")]),
    "a later attempt replaces what is complete": ("b", 2, [WHOLE, chunk("b", attempt=2, mode="replace")]),
    "an earlier attempt replaces nothing": ("a", 1, [chunk("a", attempt=2), chunk("b", mode="replace")]),
    "a draft that failed takes no more": ("a", 2, [A, chunk("", index=1, failed=True), chunk("b", index=2)]),
    "what failed is not extended": ("a", 1, [BROKEN, chunk("b", position=1, mode="extend")]),
    "a newer draft has not failed": ("b", 2, [BROKEN, chunk("b", attempt=2)]),
    "an empty extension may complete": ("a", 2, [A, chunk("", position=1, mode="extend", last=True)]),
    "an empty chunk may complete": ("a", 2, [A, chunk("", index=1, last=True)]),
}


@pytest.mark.parametrize(("text", "accepted", "chunks"), DRAFTS.values(), ids=DRAFTS.keys())
async def test_a_draft_is_ordered_by_position_and_attempt(
    task_views: TaskViews, text: str | None, accepted: int, chunks: list[ArtifactChunk]
) -> None:
    """A chunk continues the current draft, replaces it with a newer one, or is dropped."""
    view = await after(task_views, created, *(published("run", each) for each in chunks))

    artifacts = (await view_of(task_views, view.task_id)).artifacts
    assert [part.parts for part in artifacts] == ([] if text is None else [(TextPart(text=text),)])
    assert len(await stream_of(task_views, view.task_id)) == 1 + accepted


B, C = TextPart(text="b"), TextPart(text="c")
NOTES = TextPart(text="a", media_type="text/markdown", filename="notes.md")
LOG = FilePart(filename="log.txt", size=3, stored=StoredPartRef(artifact_id="x", index=2))
ODD = DataPart(data={"empty": [], "none": {}, "big": 2**63, "float": 0.1, "null": None, "/": "\x00\x7f"})
SIGNS = TextPart(text='quotes " \\ / \x00 \x1b é 漢 🙂 \u2028')
WORDS = [f"wörd {n} " for n in range(2_000)]
PARTS: dict[str, tuple[list[Part], tuple[Part, ...]]] = {
    "texts join": ([B, C], (TextPart(text="bc"),)),
    "data stands alone": ([B, data(x="1"), data(x="2"), C], (B, data(x="1"), data(x="2"), C)),
    "a text with a name begins a part": ([B, NOTES], (B, NOTES)),
    "a plain text continues it": ([NOTES, B, C], (NOTES.model_copy(update={"text": "abc"}),)),
    "a file stands alone": ([LOG, LOG, B], (LOG, LOG, B)),
    "an empty text adds nothing": ([LOG, TextPart(text="")], (LOG,)),
    "an empty text with a name is a part": (
        [LOG, NOTES.model_copy(update={"text": ""})],
        (LOG, NOTES.model_copy(update={"text": ""})),
    ),
    "content comes back exactly": ([SIGNS, SIGNS, ODD], (TextPart(text=SIGNS.text * 2), ODD)),
    "a text longer than the blocks it is stored in": (
        [TextPart(text=word) for word in WORDS],
        (TextPart(text="".join(WORDS)),),
    ),
}


@pytest.mark.parametrize(("chunks", "parts"), PARTS.values(), ids=PARTS.keys())
async def test_chunks_come_to_parts(
    task_views: TaskViews, chunks: list[Part], parts: tuple[Part, ...]
) -> None:
    """Chunks with a media type, a file name or content of their own are parts.

    Plain text continues a text.
    """
    id_ = "a:b:🙂"
    told = [chunk("", index=n, part=part, artifact_id=id_) for n, part in enumerate(chunks)]
    view = await after(task_views, created, published("run", chunk("z"), *told))

    _, found = (await view_of(task_views, view.task_id)).artifacts
    assert (found.artifact_id, found.parts) == (id_, parts)
    assert (await stream_of(task_views, view.task_id))[2:] == told

    await published("run", chunk("short", attempt=2, last=True, artifact_id=id_))(task_views, view)
    assert (await view_of(task_views, view.task_id)).artifacts == (
        artifact("z", complete=False),
        artifact("short", artifact_id=id_),
    )


async def test_what_comes_after_a_removed_artifact_is_one_of_its_own(redis: Redis) -> None:
    """Chunks after the removal of an artifact make a new one, beside the remaining ones."""
    views, view = TaskViews(redis), submitted()
    await views.create(view)
    for artifact_id in ("a", "b", "c"):
        await views.publish(view.task_id, "run", [chunk(artifact_id, artifact_id=artifact_id)])

    assert await views.forget_artifact(view.task_id, "b") > 0
    await views.publish(view.task_id, "run", [chunk("d", artifact_id="d")])

    shown = await view_of(views, view.task_id)
    assert [artifact.artifact_id for artifact in shown.artifacts] == ["a", "c", "d"]
