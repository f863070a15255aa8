"""The files of a conversation, from the artifact store to the model."""

from collections.abc import AsyncIterator
from traceback import format_exception

import pytest
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everloop.activities.model.files import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.messages import (
    FilePart,
    Part,
    StoredPart,
    SummaryMessage,
    TextPart,
    UserMessage,
)
from everloop.workflows.contract.names import context_key
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.rigs.model_rig import ModelBench, model_bench
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI

PLACE = "https://s3.internal/bucket"


async def store(
    bench: ModelBench, artifact_id: str, content: bytes, media_type: str = "image/png"
) -> FilePart:
    """Store a file that a client sent; return the part of its message."""
    context = context_key(bench.task.owner, bench.task.context_id)
    part = NewPart("file", content, media_type)
    await bench.artifacts.apply(
        context, artifact_id, Create(bench.task.task_id, (part,), complete=True, is_input=True)
    )
    return FilePart(media_type=media_type, size=len(content), stored=StoredPart(artifact_id=artifact_id))


def says(*parts: Part) -> UserMessage:
    """Return a message of the client."""
    return UserMessage(message_id="m", parts=parts)


def kinds(request: ReceivedRequest) -> list[list[str]]:
    """Return what kinds of parts each message of the client has."""
    return [_kinds(message["content"]) for message in request.conversation if message["role"] == "user"]


def _kinds(content: JsonValue) -> list[str]:
    parts = content if isinstance(content, list) else [{"type": "text"}]
    return [str(part["type"]) for part in parts if isinstance(part, dict)]


async def test_an_image_reaches_the_model() -> None:
    """It is read from the store of the context."""
    async with ScriptedOpenAI([Reply(["A cat."])]) as provider, model_bench(provider) as bench:
        part = await store(bench, "input-1", b"hi")
        await bench.run(bench.call.model_copy(update={"new": (says(TextPart(text="What?"), part),)}))

        message = provider.requests[0].conversation[-1]
        assert message["content"] == [
            {"type": "text", "text": "What?"},
            {"type": "text", "text": "[file, image/png, 2 bytes; artifact input-1]"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        ]


async def test_a_file_that_is_gone_does_not_stop_the_task() -> None:
    """The model reads that it is gone."""
    async with ScriptedOpenAI([Reply(["Pity."])]) as provider, model_bench(provider) as bench:
        part = FilePart(media_type="image/png", stored=StoredPart(artifact_id="input-1"))
        await bench.run(bench.call.model_copy(update={"new": (says(part),)}))

        assert provider.requests[0].conversation[-1]["content"] == (
            "[file, image/png; artifact input-1 (no longer available)]"
        )


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([[MAX_MESSAGE_BYTES]], [["text", "image_url"]]),
        ([[MAX_MESSAGE_BYTES + 1]], [["text"]]),
        ([[MAX_MESSAGE_BYTES, 1]], [["text", "image_url", "text"]]),
        (
            [[MAX_REQUEST_BYTES // 3 + 1]] * 3,
            [["text"], ["text", "image_url"], ["text", "image_url"]],
        ),
    ],
    ids=["just fits", "too large", "no room for the second", "newest messages first"],
)
async def test_a_request_carries_only_so_much(sizes: list[list[int]], expected: list[list[str]]) -> None:
    """Of what is beyond it the model is only told."""
    async with ScriptedOpenAI([Reply(["Fine."])]) as provider, model_bench(provider) as bench:
        messages: list[UserMessage] = []
        for number, files in enumerate(sizes):
            parts = [await store(bench, f"input-{number}-{n}", b"a" * size) for n, size in enumerate(files)]
            messages.append(says(*parts))
        await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 0, messages)
        await bench.run(bench.call.model_copy(update={"length": len(messages), "new": ()}))

        assert kinds(provider.requests[0]) == expected


async def test_files_of_covered_messages_are_not_read() -> None:
    """A summary stands for them."""
    store_ = ReadingArtifacts()
    async with (
        ScriptedOpenAI([Reply(["Fine."])]) as provider,
        model_bench(provider, artifacts=store_) as bench,
    ):
        parts = [await store(bench, f"input-{n}", b"hi") for n in range(3)]
        transcript = [*map(says, parts), SummaryMessage(end=2, text="Two images.")]
        await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 0, transcript)
        await bench.run(bench.call.model_copy(update={"length": 4, "new": ()}))

        assert sorted(store_.read) == ["input-0", "input-2"]


async def test_a_store_that_is_away_is_waited_for() -> None:
    """The model is not asked without the file. The failure, which is kept, tells not where the store is."""
    async with (
        ScriptedOpenAI([Reply(["Fine."])]) as provider,
        model_bench(provider, artifacts=AwayArtifacts()) as bench,
    ):
        part = await store(bench, "input-1", b"hi")
        with pytest.raises(ApplicationError) as raised:
            await bench.run(bench.call.model_copy(update={"new": (says(part),)}))

        assert (raised.value.type, raised.value.non_retryable) == (FILES_UNAVAILABLE, False)
        assert PLACE not in "".join(format_exception(raised.value))

        assert provider.requests == []


class ReadingArtifacts(MemoryArtifacts):
    """Remembers what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.read.append(artifact_id)
        return super().read_part(context_id, artifact_id, index, start=start, end=end)


class AwayArtifacts(MemoryArtifacts):
    """Cannot read content now."""

    def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        raise BlobsUnavailableError(PLACE, "it is away")
