"""The text of an MCP tool's result for a model."""

import re

import pytest
from mcp_types import (
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import JsonValue

from everloop.agents.mcp.mcp_errors import McpProtocolError, McpToolError
from everloop.agents.mcp.mcp_results import MOST_LINKS, ResultWriter
from tests.support.rigs.mcp_rig import KeptArtifacts

PICTURE = ImageContent(data="AAAA", mime_type="image/png")


async def no_resource(uri: str) -> ReadResourceResult:
    raise McpProtocolError(f"no {uri}")


def writer(artifacts: KeptArtifacts, key: str = "task/call") -> ResultWriter:
    return ResultWriter("draw", key, artifacts.of_a_tool, no_resource)


async def read(*content: TextContent | ImageContent | ResourceLink, structured: JsonValue = None) -> str:
    result = CallToolResult(content=list(content), structured_content=structured)
    return await writer(KeptArtifacts()).text_of(result)


@pytest.mark.parametrize(
    ("texts", "structured", "told"),
    [
        (["a", "b"], None, "a\nb"),
        ([], None, ""),
        ([], {"n": 1}, '{"n":1}'),
        (['{ "n": 1 }'], {"n": 1}, '{"n":1}'),
        (["one"], {"n": 1}, 'one\n{"n":1}'),
        (["hello"], {"result": "hello"}, "hello"),
        (["7"], {"result": 7}, "7"),
        (["7"], {"result": 8}, '7\n{"result":8}'),
        ([], {"result": "hello"}, '{"result":"hello"}'),
    ],
)
async def test_texts_and_data_are_told_once(texts: list[str], structured: JsonValue, told: str) -> None:
    """Servers repeat structured results as a text."""
    assert await read(*[TextContent(text=text) for text in texts], structured=structured) == told


async def test_a_call_that_runs_again_replaces_its_files() -> None:
    """Their ids come from the call; those of another call differ."""
    artifacts = KeptArtifacts()
    result = CallToolResult(content=[PICTURE, PICTURE])
    first = await writer(artifacts).text_of(result)

    assert await writer(artifacts).text_of(result) == first
    assert len(artifacts.files) == 2
    await writer(artifacts, "task/other").text_of(result)
    assert len(artifacts.files) == 4
    assert all(artifact_id in first for artifact_id in list(artifacts.files)[:2])


async def test_a_file_that_cannot_be_kept_is_told_of() -> None:
    """The tool has run; a missing place for its picture does not make it a failure."""
    artifacts = KeptArtifacts()
    artifacts.refuses = True

    told = await writer(artifacts).text_of(CallToolResult(content=[TextContent(text="drawn"), PICTURE]))

    assert told == "drawn\n[draw-1.png, image/png, 3 bytes: it could not be kept as an artifact]"


async def test_of_many_links_not_all_are_followed() -> None:
    """The model reads the addresses of the others."""
    followed: list[str] = []

    async def give(uri: str) -> ReadResourceResult:
        followed.append(uri)
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, text="text")])

    links = [ResourceLink(uri=f"test://{number}", name=f"N{number}") for number in range(MOST_LINKS + 1)]
    artifacts = KeptArtifacts()
    told = await ResultWriter("find", "key", artifacts.of_a_tool, give).text_of(
        CallToolResult(content=[*links])
    )

    assert len(followed) == len(artifacts.files) == MOST_LINKS
    assert told.endswith(f"[resource test://{MOST_LINKS}: N{MOST_LINKS}]")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("AA\nAA\r\n", "3 bytes: artifact"),
        ("data:image/png;base64,AAAA", "3 bytes: artifact"),
        ("no base64!", "[draw-1.png, image/png: lost: the server sent it as something else than base64]"),
    ],
)
async def test_a_file_is_read_if_it_can_be(data: str, told: str) -> None:
    """The tool has run: one invalid picture does not remove the rest of its result."""
    text = await read(TextContent(text="drawn"), ImageContent(data=data, mime_type="image/png"))
    assert text.startswith("drawn\n")
    assert told in text


FAILURES: list[tuple[list[ContentBlock], JsonValue, str]] = [
    ([TextContent(text="no paper")], None, "no paper"),
    ([TextContent(text='{"n": 1}')], {"n": 1}, '{"n":1}'),
    ([TextContent(text="no paper")], {"code": "E1"}, 'no paper\n{"code":"E1"}'),
    ([], {"code": "RATE_LIMITED"}, '{"code":"RATE_LIMITED"}'),
    ([EmbeddedResource(resource=TextResourceContents(uri="x://e", text="no disk"))], None, "no disk"),
    ([PICTURE], None, "the tool failed and did not say why"),
]


@pytest.mark.parametrize(("content", "structured", "told"), FAILURES)
async def test_all_that_an_error_says_is_read(
    content: list[ContentBlock], structured: JsonValue, told: str
) -> None:
    """Also if it is in the structured result alone, or in a resource."""
    result = CallToolResult(content=content, structured_content=structured, is_error=True)
    with pytest.raises(McpToolError, match=re.escape(told)) as failed:
        await writer(KeptArtifacts()).text_of(result)
    assert str(failed.value) == told
