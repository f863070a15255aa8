"""The files of a conversation, from the artifact store to the model."""

from collections.abc import AsyncIterator
from traceback import format_exception

import pytest
from pydantic import JsonValue

from everloop.activities.model.files import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.messages import (
    FilePart,
    Part,
    StoredPart,
    SummaryMessage,
    TextPart,
    UserMessage,
)
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.rigs.model_rig import ModelRig, model_rig
from tests.support.servers.scripted_openai import ReceivedRequest, Reply

PLACE = "https://s3.internal/bucket"


async def store(rig: ModelRig, artifact_id: str, content: bytes) -> FilePart:
    """Store an image that a client sent; return the part of its message."""
    part = NewPart("file", content, "image/png")
    change = Create(rig.task.task_id, (part,), complete=True, is_input=True)
    await rig.artifacts.apply(rig.context, artifact_id, change)
    return FilePart(media_type="image/png", size=len(content), stored=StoredPart(artifact_id=artifact_id))


def says(*parts: Part) -> UserMessage:
    return UserMessage(message_id="m", parts=parts)


def kinds(request: ReceivedRequest) -> list[list[str]]:
    """Return what kinds of parts each message of the client has."""
    return [_kinds(message["content"]) for message in request.conversation if message["role"] == "user"]


def _kinds(content: JsonValue) -> list[str]:
    parts = content if isinstance(content, list) else [{"type": "text"}]
    return [str(part["type"]) for part in parts if isinstance(part, dict)]


async def test_an_image_reaches_the_model() -> None:
    """It is read from the store of the context; of one that is gone the model reads that it is."""
    async with model_rig([Reply(["A cat."])]) as rig:
        part = await store(rig, "input-1", b"hi")
        gone = FilePart(media_type="image/png", stored=StoredPart(artifact_id="input-2"))
        await rig.run(rig.changed(new=(says(TextPart(text="What?"), part, gone),)))
        assert rig.provider.requests[0].conversation[-1]["content"] == [
            {"type": "text", "text": "What?"},
            {"type": "text", "text": "[file, image/png, 2 bytes; artifact input-1]"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            {"type": "text", "text": "[file, image/png; artifact input-2 (no longer available)]"},
        ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([[MAX_MESSAGE_BYTES]], [["text", "image_url"]]),
        ([[MAX_MESSAGE_BYTES + 1]], [["text"]]),
        ([[MAX_MESSAGE_BYTES, 1]], [["text", "image_url", "text"]]),
        ([[MAX_REQUEST_BYTES // 3 + 1]] * 3, [["text"], ["text", "image_url"], ["text", "image_url"]]),
    ],
    ids=["just fits", "too large", "no room for the second", "newest messages first"],
)
async def test_a_request_carries_only_so_much(sizes: list[list[int]], expected: list[list[str]]) -> None:
    """Of what is beyond it the model is only told."""
    async with model_rig([Reply(["Fine."])]) as rig:
        for number, files in enumerate(sizes):
            parts = [await store(rig, f"input-{number}-{n}", b"a" * size) for n, size in enumerate(files)]
            await rig.store(says(*parts), start=number)
        await rig.run(rig.changed(length=len(sizes), new=()))
        assert kinds(rig.provider.requests[0]) == expected


async def test_files_of_covered_messages_are_not_read() -> None:
    """A summary stands for them."""
    artifacts = WatchedArtifacts()
    async with model_rig([Reply(["Fine."])], artifacts=artifacts) as rig:
        parts = [await store(rig, f"input-{n}", b"hi") for n in range(3)]
        await rig.store(*map(says, parts), SummaryMessage(end=2, text="Two images."))
        await rig.run(rig.changed(length=4, new=()))
        assert sorted(artifacts.read) == ["input-0", "input-2"]


async def test_a_store_that_is_away_is_waited_for() -> None:
    """The model is not asked without the file. The failure, which is kept, tells not where the store is."""
    async with model_rig([Reply(["Fine."])], artifacts=WatchedArtifacts(is_away=True)) as rig:
        failure = await rig.fail(rig.changed(new=(says(await store(rig, "input-1", b"hi")),)))
        assert (failure.type, failure.non_retryable) == (FILES_UNAVAILABLE, False)
        assert PLACE not in "".join(format_exception(failure))
        assert rig.provider.requests == []


class WatchedArtifacts(MemoryArtifacts):
    """Remembers what is read, or cannot read content now."""

    def __init__(self, *, is_away: bool = False) -> None:
        super().__init__()
        self.read: list[str] = []
        self._is_away = is_away

    def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        if self._is_away:
            raise BlobsUnavailableError(PLACE, "it is away")
        self.read.append(artifact_id)
        return super().read_part(context_id, artifact_id, index, start=start, end=end)
