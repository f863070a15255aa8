"""Tools for models to write artifacts."""

import codecs
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, Field, JsonValue

from everloop.agents.artifact_drafts import (
    DraftReader,
    MediaType,
    WrittenPart,
    read_claim,
    read_creation,
    read_data_append,
    read_text_append,
    read_update,
    text_parts,
)
from everloop.agents.errors import AgentDefinitionError
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolArtifacts, ToolContext
from everloop.workflows.contract.artifacts import ArtifactPart, StoredArtifact
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import DataPart, TextPart, join_texts
from everloop.workflows.contract.names import RESULT_PREFIX, result_artifact
from everloop.workflows.contract.parts import TEXT_BEGINNING, cut_bytes, encoding_of, is_text

# Content of artifacts for models, page by page.

PAGE = 50_000
"""Characters."""


_PAGE_BYTES = 4 * PAGE
"""More than the size of a page in UTF-8."""

_SMALLEST_PAGE = 1_000
"""Bytes."""


async def read_page(texts: AsyncIterator[str], start: int, most: int = _PAGE_BYTES) -> str:
    """Return the content from `start` on, and where the next page starts.

    A page has at most `PAGE` characters, and `most` bytes.
    """
    page, position = "", 0
    async for text in texts:
        page += text[max(0, start - position) : max(0, start + PAGE - position)]
        position += len(text)
        if position > start + PAGE:
            break
    page = cut_bytes(page, most)
    end = start + len(page)
    if end < position and page:
        return f"{page}\n[more from start={end} on]"
    return page or ("[it is empty]" if not position else f"[the content has {position} characters]")


async def _content(artifacts: ToolArtifacts, artifact: StoredArtifact) -> AsyncIterator[str]:
    """Yield all readable content; headings separate several parts."""
    for part in artifact.parts:
        if len(artifact.parts) > 1:
            yield f"[part {part.index}]\n" if part.index == 0 else f"\n\n[part {part.index}]\n"
        if part.url or (part.kind == "file" and not is_text(part.media_type)):
            yield _description(part)
            continue
        pieces = artifacts.read(artifact.artifact_id, part.index)
        async for text in _file_texts(pieces, part) if part.kind == "file" else _texts(pieces):
            yield text


async def _file_texts(pieces: AsyncIterator[bytes], part: ArtifactPart) -> AsyncIterator[str]:
    """Yield the text of a file, in the encoding of its type or its beginning."""
    beginning = b""
    async for piece in pieces:
        beginning += piece
        if len(beginning) > TEXT_BEGINNING:
            break
    is_complete = len(beginning) <= TEXT_BEGINNING
    told = encoding_of(part.media_type, beginning[:TEXT_BEGINNING], is_complete=is_complete)
    async for text in _texts(pieces, beginning, told or "utf-8"):
        yield text


async def _texts(
    pieces: AsyncIterator[bytes], beginning: bytes = b"", encoding: str = "utf-8"
) -> AsyncIterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(beginning)
    async for piece in pieces:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _description(part: ArtifactPart) -> str:
    name = f"{part.filename}, " if part.filename else ""
    if part.url:
        return f"[{name}{part.media_type}: {part.url}]"
    return f"[{name}{part.media_type}, {part.size} bytes: no text]"


# Arguments of the tools that write artifacts, as models read and write them.


def _unreserved(artifact_id: str) -> str:
    if artifact_id == RESPONSE_ARTIFACT:
        raise ValueError(f"{RESPONSE_ARTIFACT!r} is the id of your own answer; choose another one")
    if artifact_id.startswith(RESULT_PREFIX):
        raise ValueError("ids that begin so are those of long results, which only read_result reads")
    return artifact_id


ArtifactId = Annotated[
    str,
    Field(
        min_length=1,
        validation_alias=AliasChoices("artifact_id", "artifactId"),
        description="Id of the artifact, unique in this conversation; say, quarterly-report.",
    ),
    AfterValidator(_unreserved),
]
LastChunk = Annotated[
    bool,
    Field(
        validation_alias=AliasChoices("last_chunk", "lastChunk"),
        description="true: the artifact is complete with this; false: more follows in further calls.",
    ),
]


class WrittenArtifact(BaseModel):
    """An artifact, or what is appended to one."""

    artifact_id: ArtifactId
    name: str = Field(default="", description="Name for people; only where the artifact begins.")
    description: str = Field(default="", description="What it is; only where the artifact begins.")
    parts: tuple[WrittenPart, ...] = Field(default=(), description="The content.")


LISTED = 100
"""Maximum number of artifacts in `list_artifacts`, the newest of the context."""

_TIMEOUT = timedelta(minutes=5)
"""Time that a call waits for an unavailable store."""


def artifacts(style: Literal["update", "granular"] = "update") -> Plugin:
    """Offer tools for the model to write artifacts, which are streamed while it writes.

    "update": `artifact_update`, which mirrors A2A, `list_artifacts` and `get_artifact`. "granular": one small
    tool for each step: `create_artifact`, `append_artifact`, `append_artifact_data`, `replace_artifact_part`,
    `complete_artifact` and `list_artifacts`.

    Raises:
        AgentDefinitionError: there is no such style.
    """
    if style not in _STYLES:
        raise AgentDefinitionError(f"artifacts: there is no style {style!r}; choose 'update' or 'granular'")
    offered = _STYLES[style]
    return Plugin(name="artifacts", tools=offered, artifact_tool=offered[0].name)


async def _artifact_update(
    append: Annotated[
        bool,
        Field(description="false: begin the artifact, or begin it anew; true: append to one that is there."),
    ],
    last_chunk: LastChunk,
    artifact: WrittenArtifact,
    context: ToolContext,
) -> str:
    """Write an artifact: a result that your user keeps, such as a document, a table or a file.

    The user sees it while you write it. Put what the user asked you to produce into artifacts, and refer to
    them in your answer instead of repeating them. A long one may be written in several calls: the first with
    append=false, the others with append=true, the last one with last_chunk=true. A text that is appended
    continues the last text; everything else becomes a further part.
    """
    parts = join_texts([written.part for written in artifact.parts])
    if append:
        return _summary(await context.artifacts.append(artifact.artifact_id, parts, last_chunk=last_chunk))
    return _summary(
        await context.artifacts.create(
            artifact.artifact_id,
            parts,
            name=artifact.name,
            description=artifact.description,
            complete=last_chunk,
        )
    )


async def _create_artifact(  # noqa: PLR0913 -- fields of an artifact, each by its name
    artifact_id: ArtifactId,
    name: Annotated[str, Field(description="Name for people.")],
    context: ToolContext,
    *,
    description: Annotated[str, Field(description="What it is, in a few words.")] = "",
    media_type: MediaType = "",
    content: Annotated[str, Field(description="The beginning of its text, or all of it.")] = "",
) -> str:
    """Begin an artifact: a result that your user keeps, such as a document or a table.

    The user sees it while you write it. Append to it as often as you like; at the end, complete it. One that
    has this id already is replaced.
    """
    parts = text_parts(content, media_type)
    created = await context.artifacts.create(
        artifact_id, parts, name=name, description=description, complete=False
    )
    return _summary(created)


async def _append_artifact(
    artifact_id: ArtifactId,
    content: Annotated[str, Field(description="The text that follows.")],
    context: ToolContext,
    *,
    last_chunk: LastChunk = False,
) -> str:
    """Append text to an artifact. It continues the last part, if that is text."""
    return _summary(await context.artifacts.append(artifact_id, text_parts(content), last_chunk=last_chunk))


async def _append_artifact_data(
    artifact_id: ArtifactId,
    data: Annotated[JsonValue, Field(description="Any JSON value.")],
    context: ToolContext,
) -> str:
    """Append JSON data to an artifact, as a part of its own."""
    return _summary(await context.artifacts.append(artifact_id, [DataPart(data=data)]))


async def _replace_artifact_part(
    artifact_id: ArtifactId,
    index: Annotated[int, Field(ge=0, description="Which part, counted from 0.")],
    context: ToolContext,
    content: Annotated[str | None, Field(description="The new text of the part.")] = None,
    data: Annotated[JsonValue, Field(description="The new JSON value of the part, if it is no text.")] = None,
) -> str:
    """Put a new text, or new JSON data, in the place of a part of an artifact."""
    if content is not None and data is not None:
        raise ValueError("give content or data, not both")
    part = DataPart(data=data) if content is None else TextPart(text=content)
    return _summary(await context.artifacts.replace_part(artifact_id, index, part))


async def _complete_artifact(artifact_id: ArtifactId, context: ToolContext) -> str:
    """Say that an artifact is complete. It cannot be changed afterwards."""
    return _summary(await context.artifacts.complete(artifact_id))


async def _list_artifacts(context: ToolContext) -> str:
    """List the artifacts of this conversation, also the files that your user sent."""
    found = await context.artifacts.list()
    lines = [_summary(artifact) for artifact in found[-LISTED:]]
    if left_out := len(found) - len(lines):
        lines.insert(0, f"[{left_out} older ones are left out]")
    return "\n".join(lines) or "There is no artifact yet."


async def _get_artifact(
    artifact_id: ArtifactId,
    context: ToolContext,
    start: Annotated[int, Field(ge=0, description="Character from which on to read.")] = 0,
) -> str:
    """Read an artifact: at most 50,000 characters at once. Other content than text is only described."""
    artifact = await context.artifacts.get(artifact_id)
    return f"{_summary(artifact)}\n{await read_page(_content(context.artifacts, artifact), start)}"


def _summary(artifact: StoredArtifact) -> str:
    parts, size = len(artifact.parts), sum(part.size for part in artifact.parts)
    counted = f"{parts} part" if parts == 1 else f"{parts} parts"
    facts = [f"version {artifact.version}", artifact.status.value, counted, f"{size} bytes"]
    types = dict.fromkeys(part.media_type for part in artifact.parts if part.media_type)
    facts += [", ".join(types)] if types else []
    facts += [f"named {artifact.name!r}"] if artifact.name else []
    facts += ["sent by the user"] if artifact.is_input else []
    return f"{artifact.artifact_id}: {', '.join(facts)}"


def _offer(function: Callable[..., Coroutine[None, None, str]], draft_of: DraftReader | None = None) -> Tool:
    name = function.__name__.removeprefix("_")
    offered = tool(name=name, idempotent=True, serial=True, timeout=_TIMEOUT)(function)
    return replace(offered, draft_of=draft_of)


_LIST = _offer(_list_artifacts)
_GET = replace(_offer(_get_artifact), max_result=2 * _PAGE_BYTES)  # a page is returned complete
_STYLES: dict[str, tuple[Tool, ...]] = {
    "update": (_offer(_artifact_update, read_update), _LIST, _GET),
    "granular": (
        _offer(_create_artifact, read_creation),
        _offer(_append_artifact, read_text_append),
        _offer(_append_artifact_data, read_data_append),
        _offer(_replace_artifact_part, read_claim),
        _offer(_complete_artifact, read_claim),
        _LIST,
    ),
}
"""The tools of each style; the first one makes an artifact."""


# Built-in tools for reading on: `BUILT_IN_TOOLS`.

_Start = Annotated[int, Field(ge=0, description="Character from which on to read.")]


@lru_cache
def reading_tools(most: int) -> Mapping[str, Tool]:
    """Return the tools that read on, in pages with this limit of bytes (at least 1,000)."""
    most = max(most, _SMALLEST_PAGE)

    async def read_result(
        result: Annotated[str, Field(description="Which one: as its note says.")],
        context: ToolContext,
        start: _Start = 0,
    ) -> str:
        """Read on in a tool's result of which you got the beginning only; the end says where to go on."""
        artifact_id = result_artifact(context.task_id, result)
        try:
            return await read_page(_texts(context.artifacts.read(artifact_id, 0)), start, most)
        except LookupError:
            raise ValueError(
                f"this task has kept no result {result!r}; take the name from the note at the end of one"
            ) from None

    async def read_attachment(
        artifact_id: ArtifactId,
        context: ToolContext,
        index: Annotated[int, Field(ge=0, description="Which part, counted from 0.")] = 0,
        start: _Start = 0,
    ) -> str:
        """Read on in a text file of which you got the beginning only; the end says where to go on."""
        parts = (await context.artifacts.get(artifact_id)).parts
        if index >= len(parts) or parts[index].url or not is_text(parts[index].media_type):
            raise ValueError(f"part {index} of {artifact_id!r} is no text file")
        pieces = context.artifacts.read(artifact_id, index)
        return await read_page(_file_texts(pieces, parts[index]), start, most)

    return {offered.name: offered for offered in map(_offer, (read_result, read_attachment))}
