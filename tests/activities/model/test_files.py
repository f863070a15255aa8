"""The files of a conversation, from the artifact store to the model."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from traceback import format_exception

import pytest
from pydantic import JsonValue

from everloop import Agent, Plugin, mcp
from everloop.activities.model.model_files import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from everloop.agents.plugins import tools as plugin_of
from everloop.agents.tool import digest_of, tool
from everloop.agents.tool_context import ToolContext
from everloop.models.catalogue import ModelEntry
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.messages import (
    AssistantMessage,
    FilePart,
    Part,
    StoredPartRef,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from everloop.workflows.contract.names import context_key
from tests.support.rigs.mcp_rig import STDIO, asker, opened
from tests.support.rigs.model_rig import ModelRig, model_rig
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.scripted_openai import ReceivedRequest, Reply
from tests.support.servers.zoo.openai_chat import OpenAI
from tests.support.servers.zoo.provider import Played
from tests.support.stores import database

CONTENT = b"\x89PNG\r\n\x1a\npixel"
ENCODED = b64encode(CONTENT).decode()
PLACE = "https://s3.internal/bucket"


async def store(rig: ModelRig, artifact_id: str, content: bytes) -> FilePart:
    """Store an image that a client sent; return the part of its message."""
    part = NewPart("file", content, "image/png")
    change = Create(rig.task.task_id, (part,), complete=True, is_input=True)
    await rig.artifacts.apply(rig.context, artifact_id, change)
    return FilePart(media_type="image/png", size=len(content), stored=StoredPartRef(artifact_id=artifact_id))


def says(*parts: Part) -> UserMessage:
    return UserMessage(message_id="m", parts=parts)


def kinds(request: ReceivedRequest) -> list[list[str]]:
    """Return the kinds of the parts of each client message."""
    return [_kinds(message["content"]) for message in request.conversation if message["role"] == "user"]


def _kinds(content: JsonValue) -> list[str]:
    parts = content if isinstance(content, list) else [{"type": "text"}]
    return [str(part["type"]) for part in parts if isinstance(part, dict)]


async def test_an_image_reaches_the_model() -> None:
    """An image is read from the context's store; of a deleted one the model reads that it is gone."""
    async with model_rig([Reply(["A cat."])]) as rig:
        part = await store(rig, "input-1", CONTENT)
        gone = FilePart(media_type="image/png", stored=StoredPartRef(artifact_id="input-2"))
        await rig.run(rig.changed(new=(says(TextPart(text="What?"), part, gone),)))
        assert rig.provider.requests[0].conversation[-1]["content"] == [
            {"type": "text", "text": "What?"},
            {"type": "text", "text": f"[file, image/png, {len(CONTENT)} bytes; artifact input-1]"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
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
    """A request carries files up to a bound; others are named to the model."""
    async with model_rig([Reply(["Fine."])]) as rig:
        for number, files in enumerate(sizes):
            parts = [
                await store(rig, f"input-{number}-{n}", CONTENT.ljust(size, b"a")[:size])
                for n, size in enumerate(files)
            ]
            await rig.store(says(*parts), start=number)
        await rig.run(rig.changed(length=len(sizes), new=()))
        assert kinds(rig.provider.requests[0]) == expected


async def test_files_of_covered_messages_are_not_read() -> None:
    """Files of messages that a summary covers are not read."""
    artifacts = WatchedArtifacts()
    async with model_rig([Reply(["Fine."])], artifacts=artifacts) as rig:
        parts = [await store(rig, f"input-{n}", b"hi") for n in range(3)]
        await rig.store(*map(says, parts), SummaryMessage(end=2, text="Two images."))
        await rig.run(rig.changed(length=4, new=()))
        assert sorted(artifacts.read) == ["input-0", "input-2"]


async def test_a_store_that_is_away_is_waited_for() -> None:
    """The model is asked only once the store is back; the recorded failure has no address of the store."""
    async with model_rig([Reply(["Fine."])], artifacts=WatchedArtifacts(is_away=True)) as rig:
        failure = await rig.fail(rig.changed(new=(says(await store(rig, "input-1", b"hi")),)))
        assert (failure.type, failure.non_retryable) == (FILES_UNAVAILABLE, False)
        assert PLACE not in "".join(format_exception(failure))
        assert rig.provider.requests == []


async def shown_by(rig: ModelRig, plugin: Plugin, name: str) -> ToolMessage:
    """Return the result of a tool that works on the stores of a model rig."""
    (found,) = [each for each in await plugin.list_tools(asker()) if each.name == name] or plugin.tools
    tools = ToolRig(plugins=[plugin], artifacts=rig.artifacts)
    listed_by = plugin.name if plugin.overrides("list_tools") else ""
    digest = digest_of(found)
    call = tools.call(name).model_copy(update={"task": rig.task, "plugin": listed_by, "digest": digest})
    return await tools.run(call)


async def ask_with(rig: ModelRig, result: ToolMessage) -> ReceivedRequest:
    """Return the provider's request that follows the result of a tool."""
    asked = ToolCall(id=result.call_id, name=result.name, arguments="{}")
    await rig.store(says(TextPart(text="Look.")), AssistantMessage(tool_calls=(asked,)), result)
    await rig.run(rig.changed(length=3, new=()))
    return rig.provider.requests[0]


async def test_images_of_an_mcp_server_reach_the_model() -> None:
    """Images of a real MCP server reach the model after the result; audio is named."""
    async with (
        model_rig(OpenAI(Played(text="A cat."))) as rig,
        opened(mcp(command=STDIO, name="full")) as server,
    ):
        result = await shown_by(rig, server, "files")
        request = await ask_with(rig, result)
    assert [part.stored and (part.content, part.media_type) for part in result.files] == [
        ("", "image/png"),
        ("", "audio/mpeg"),
    ]
    image_id, audio_id = (part.stored.artifact_id for part in result.files if part.stored)
    encoded, size = b64encode(CONTENT).decode(), f"{len(CONTENT)} bytes"
    assert [message["role"] for message in request.conversation] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert request.conversation[-1]["content"] == [
        {"type": "text", "text": "[Files of the results above]"},
        {"type": "text", "text": f"[file files-1.png, image/png, {size}; artifact {image_id}]"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
        {
            "type": "text",
            "text": f"[file files-2.mp3, audio/mpeg, {size}; artifact {audio_id} (not shown to you)]",
        },
    ]


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        (
            "application/pdf",
            {"type": "file", "file": {"filename": "a", "file_data": "data:application/pdf;base64,aGk="}},
        ),
        ("audio/wav", {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}),
    ],
)
async def test_a_tool_shows_files_of_any_kind(media_type: str, expected: JsonValue) -> None:
    """A tool shows files of any kind in the form that the model takes, each once."""

    @tool
    async def draw(context: ToolContext) -> str:
        """Draw."""
        await context.artifacts.write_file("a", b"hi", media_type=media_type, filename="a")
        for _ in range(2):
            await context.show("a")
        return "drawn"

    agent = Agent(id="agent", name="Agent", description="", model_takes=["application/pdf", "audio/*"])
    async with model_rig([Reply(["Fine."])], agent=agent) as rig:
        request = await ask_with(rig, await shown_by(rig, plugin_of(draw), "draw"))
    content = request.conversation[-1]["content"]
    assert isinstance(content, list)
    assert content[2:] == [expected]


@pytest.mark.parametrize(("takes", "kind"), [(None, "image_url"), (("image/*",), "image_url"), ((), "text")])
async def test_a_model_gets_no_more_than_its_provider_says(takes: tuple[str, ...] | None, kind: str) -> None:
    """A model gets images only if the agent takes them and its provider does not rule them out."""
    async with model_rig([Reply(["Fine."])], models={"": ModelEntry(takes=takes)}) as rig:
        await rig.run(rig.changed(new=(says(await store(rig, "input-1", CONTENT)),)))
    assert kinds(rig.provider.requests[0])[-1][-1] == kind


@pytest.mark.parametrize("hints", ["key", "breakpoints", ""])
async def test_a_provider_gets_the_hints_that_it_wants(hints: str) -> None:
    """Each call of a conversation sends the same cache hints to a provider that takes them."""
    async with model_rig([Reply(["Fine."])] * 2, cache=hints) as rig:
        for position in range(2):
            await rig.run(rig.changed(length=1 + position, new=(says(TextPart(text="Hi")),)))
            await rig.store(says(TextPart(text="Hi")), start=1)
    first, second = (request.body for request in rig.provider.requests)
    assert first.get("prompt_cache_key") == second.get("prompt_cache_key")
    assert ("prompt_cache_key" in first) is (hints == "key")
    assert ("cache_control" in str(first)) is (hints == "breakpoints")


async def test_what_cannot_be_shown_is_an_error_of_the_tool() -> None:
    """A file that cannot be shown is an error of the tool, with the available files or their limit."""

    @tool
    async def show(artifact_id: str, index: int, count: int, context: ToolContext) -> str:
        """Show."""
        for number in range(count):
            await context.artifacts.write_file(f"a{number}", "text")
            await context.show(artifact_id or f"a{number}", index)
        return "shown"

    rig = ToolRig(show)
    for arguments, problem in [
        ('{"artifact_id": "x", "index": 0, "count": 1}', "there is no artifact 'x'"),
        ('{"artifact_id": "a0", "index": 1, "count": 1}', "has no part 1"),
        ('{"artifact_id": "", "index": 0, "count": 21}', "shows the model 20 files at most"),
    ]:
        result = await rig.run(rig.call("show", arguments, call_id=f"c{len(problem)}"))
        assert result.outcome == "error"
        assert problem in result.content


@pytest.mark.parametrize(
    ("charset", "letters", "count"),
    [("utf-8", "é漢😀", 240_000), ("utf-16", "é漢😀", 20_000), ("cp1252", "é€", 60_000)],
)
async def test_a_long_text_of_the_client_is_read_on_to_its_end(
    charset: str, letters: str, count: int
) -> None:
    """A client's text of up to 4 MB is read to its end in any charset: the first page with the request."""
    text = "".join(f"{number} {letters}\n" for number in range(count))
    async with model_rig([Reply(["Fine."])]) as rig:
        part = NewPart("file", text.encode(charset), "text/plain")
        change = Create(rig.task.task_id, (part,), complete=True, is_input=True)
        await rig.artifacts.apply(rig.context, "input-1", change)
        stored = StoredPartRef(artifact_id="input-1")
        file = FilePart(media_type="text/plain", size=len(text.encode(charset)), stored=stored)
        await rig.run(rig.changed(new=(says(file),)))
        request = rig.provider.requests[0]
        given = str(request.conversation[-1]["content"])
        tools = ToolRig(artifacts=rig.artifacts)
        note = re.search(
            r'\n\[100,000 of [\d,]+ bytes; read on with read_attachment\("input-1", 0, start=(\d+)\)\]$',
            given,
        )
        assert note
        read, start = given[given.index("\n") + 1 : note.start()], note[1]
        while start:
            call = tools.call(
                "read_attachment", f'{{"artifact_id": "input-1", "start": {start}}}', call_id=start
            )
            page = await tools.run(call.model_copy(update={"task": rig.task}))
            more = re.search(r"\n\[more from start=(\d+) on\]$", page.content)
            read += page.content[: more.start()] if more else page.content
            start = more[1] if more else ""
    assert read == text
    offered = request.body["tools"]
    assert isinstance(offered, list)
    assert "read_attachment" in str(offered[-1])


async def test_only_texts_are_read_on() -> None:
    """Reading on in any other file is an error that says so."""
    rig = ToolRig()
    for media_type, name in (("image/png", "picture"), ("text/plain", "text")):
        await rig.artifacts.apply(
            context_key("owner", "c"),
            name,
            Create("task", (NewPart("file", b"hi", media_type),), complete=True),
        )
    for artifact_id, index, said in [
        ("picture", 0, "is no text file"),
        ("text", 1, "is no text file"),
        ("text", 0, "hi"),
    ]:
        arguments = f'{{"artifact_id": "{artifact_id}", "index": {index}}}'
        call = rig.call("read_attachment", arguments, call_id=f"{artifact_id}{index}")
        assert said in (await rig.run(call)).content


class WatchedArtifacts(Artifacts):
    """A store that records reads, or cannot read content."""

    def __init__(self, *, is_away: bool = False) -> None:
        redis = database()
        super().__init__(redis, RedisBlobs(redis))
        self.read: list[str] = []
        self._is_away = is_away

    def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        if self._is_away:
            raise BlobsUnavailableError(PLACE, "it is away")
        self.read.append(artifact_id)
        return super().read_part(context_id, artifact_id, index, start=start, end=end)
