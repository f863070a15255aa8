"""Tools of the plugin artifacts, with which the model writes and reads artifacts."""

from base64 import b64encode

import pytest
from pydantic import JsonValue

from everloop.agents.artifact_tools import LISTED, PAGE, artifacts
from everloop.agents.errors import AgentDefinitionError
from everloop.workflows.contract.messages import DataPart, TextPart
from tests.support.rigs.artifacts.harness import ArtifactHarness


async def test_an_update_creates_appends_and_completes() -> None:
    """An update creates, appends and completes as in A2A, and each call returns the artifact's state."""
    harness = ArtifactHarness()

    results = [
        await harness.update({"media_type": "text/markdown", "text": "# One"}, name="Doc", description="D"),
        await harness.update({"text": "\nTwo"}, {"data": {"a": 1}}, append=True),
        await harness.update({"text": "Three"}, append=True, last_chunk=True),
    ]

    assert [result.content for result in results] == [
        "doc: version 1, building, 1 part, 5 bytes, text/markdown, named 'Doc'",
        "doc: version 2, building, 2 parts, 16 bytes, text/markdown, named 'Doc'",
        "doc: version 3, complete, 3 parts, 21 bytes, text/markdown, named 'Doc'",
    ]
    assert {result.artifacts for result in results} == {("doc",)}
    assert await harness.parts() == (
        TextPart(text="# One\nTwo", media_type="text/markdown"),
        DataPart(data={"a": 1}),
        TextPart(text="Three"),
    )


async def test_an_update_may_be_written_as_json_of_a2a() -> None:
    """An update may be A2A JSON: names in camel case, empty other contents, unknown fields."""
    harness = ArtifactHarness()
    part: JsonValue = {"mediaType": "text/html", "text": "a", "raw": "", "url": None, "metadata": {}}
    artifact: JsonValue = {"artifactId": "doc", "parts": [part], "extensions": []}
    result = await harness.call("artifact_update", append=False, lastChunk=True, artifact=artifact)
    assert result.outcome == "ok"
    assert await harness.parts() == (TextPart(text="a", media_type="text/html"),)


async def test_a_binary_part_is_stored_as_bytes() -> None:
    """A binary part comes in base64 and is stored as bytes."""
    harness = ArtifactHarness()
    raw = b64encode(b"\x00\xff").decode()
    await harness.update({"media_type": "image/png", "filename": "a.png", "raw": raw}, last_chunk=True)
    (part,) = (await harness.stored()).parts
    assert (part.kind, part.media_type, part.filename, part.size) == ("file", "image/png", "a.png", 2)


async def test_an_update_again_replaces_the_artifact() -> None:
    """An update without append replaces an existing artifact."""
    harness = ArtifactHarness()
    await harness.update({"text": "old"}, last_chunk=True)
    await harness.update({"text": "new"})
    assert await harness.parts() == (TextPart(text="new"),)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({}, "has one of text, data, raw and url"),
        ({"text": "a", "url": "https://example.org"}, "not text and url"),
        ({"raw": "no base64"}, "raw is no base64"),
        ({"url": "file:///etc/passwd"}, "url is no web address"),
        ({"url": "https://me:secret@example.org/a"}, "url has a user name or a password"),
        ({"url": f"https://{'a' * 2000}"}, "a URL may have 2000"),
    ],
)
async def test_a_part_that_is_none_is_refused(part: JsonValue, problem: str) -> None:
    """An invalid part is refused with its index and the problem."""
    result = await ArtifactHarness().update({"text": "fine"}, part)
    assert result.outcome == "invalid"
    assert "artifact.parts.1" in result.content
    assert problem in result.content


async def test_a_refusal_of_the_store_reaches_the_model() -> None:
    """A refusal of the store reaches the model by its name, as a failure of the tool."""
    harness = ArtifactHarness()
    await harness.update({"text": "a"}, last_chunk=True)
    closed = await harness.update({"text": "b"}, append=True)
    missing = await harness.call("get_artifact", artifact_id="other")
    assert (closed.outcome, missing.outcome) == ("error", "error")
    assert "ArtifactClosedError" in closed.content
    assert "ArtifactMissingError" in missing.content


async def test_small_tools_write_step_by_step() -> None:
    """Each small tool does one step."""
    harness = ArtifactHarness(granular=True)
    await harness.call(
        "create_artifact", artifact_id="doc", name="Doc", media_type="text/html", content="<p>"
    )
    await harness.call("append_artifact", artifact_id="doc", content="Hi")
    await harness.call("append_artifact_data", artifact_id="doc", data=[1])
    await harness.call("replace_artifact_part", artifact_id="doc", index=1, data={"b": 2})
    await harness.call("append_artifact", artifact_id="doc", content="End")
    result = await harness.call("complete_artifact", artifact_id="doc")
    assert result.content == "doc: version 6, complete, 3 parts, 15 bytes, text/html, named 'Doc'"
    assert await harness.parts() == (
        TextPart(text="<p>Hi", media_type="text/html"),
        DataPart(data={"b": 2}),
        TextPart(text="End"),
    )


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("update", ["artifact_update", "list_artifacts", "get_artifact"]),
        (
            "granular",
            [
                "create_artifact",
                "append_artifact",
                "append_artifact_data",
                "replace_artifact_part",
                "complete_artifact",
                "list_artifacts",
            ],
        ),
    ],
)
def test_a_style_has_its_tools(style: str, names: list[str]) -> None:
    """The tools of a style run one at a time, may be repeated, and include one that creates an artifact."""
    plugin = artifacts(style)  # pyright: ignore[reportArgumentType] -- from a table
    assert [tool.name for tool in plugin.tools] == names
    assert plugin.artifact_tool == names[0]
    assert all(tool.serial and tool.idempotent for tool in plugin.tools)


def test_there_are_two_styles() -> None:
    """There are two styles; any other is refused where the agent is defined."""
    with pytest.raises(AgentDefinitionError, match="choose 'update' or 'granular'"):
        artifacts("tiny")  # pyright: ignore[reportArgumentType] -- wrong on purpose


async def test_a_text_is_read_page_by_page() -> None:
    """A text is read in pages, each with the offset of the next one."""
    harness = ArtifactHarness()
    text = "".join(f"{n:09} " for n in range(PAGE // 5)) + "é"
    await harness.update({"text": text})
    pages: list[str] = []
    for start in (0, PAGE, 2 * PAGE):
        page = await harness.call("get_artifact", artifact_id="doc", start=start)
        head, content = page.content.split("\n", 1)
        assert head.startswith("doc: version 1, building")
        pages.append(content)
    assert pages[0].endswith(f"\n[more from start={PAGE} on]")
    assert "".join(page.split("\n[more")[0] for page in pages) == text
    beyond = await harness.call("get_artifact", artifact_id="doc", start=len(text) + 1)
    assert beyond.content.endswith(f"[the content has {len(text)} characters]")


async def test_several_parts_are_told_apart() -> None:
    """Several parts are read separately; parts other than text are described."""
    harness = ArtifactHarness()
    await harness.update(
        {"text": "One"}, {"data": {"a": 1}}, {"media_type": "image/png", "filename": "a.png", "raw": "aGk="}
    )
    read = await harness.call("get_artifact", artifact_id="doc")
    assert read.content.split("\n", 1)[1] == (
        '[part 0]\nOne\n\n[part 1]\n{"a":1}\n\n[part 2]\n[a.png, image/png, 2 bytes: no text]'
    )


async def test_what_the_user_sent_is_listed_and_read() -> None:
    """The user's files are listed and read.

    A text file is read as text from any source, an empty one says so.
    """
    harness = ArtifactHarness()
    await harness.put("input-1", b"a,b", "text/csv")
    await harness.put("input-2", b"", "text/plain")
    listed = await harness.call("list_artifacts")
    first = await harness.call("get_artifact", artifact_id="input-1")
    second = await harness.call("get_artifact", artifact_id="input-2")
    line = "input-1: version 1, building, 1 part, 3 bytes, text/csv, sent by the user"
    assert line in listed.content.splitlines()
    assert first.content == f"{line}\na,b"
    assert second.content.endswith("[it is empty]")


async def test_a_list_has_an_end() -> None:
    """A list is bounded, and has the newest artifacts."""
    harness = ArtifactHarness()
    assert (await harness.call("list_artifacts")).content == "There is no artifact yet."
    for number in range(LISTED + 2):
        await harness.put(f"a{number}", b"")
    lines = (await harness.call("list_artifacts")).content.splitlines()
    assert lines[0] == "[2 older ones are left out]"
    assert len(lines) == LISTED + 1
    assert lines[-1].startswith(f"a{LISTED + 1}:")
