"""The content of artifacts as a model reads it: page by page."""

import codecs
from collections.abc import AsyncIterator

from everloop.agents.tool_artifacts import ToolArtifacts
from everloop.workflows.contract.artifacts import ArtifactPart, StoredArtifact
from everloop.workflows.contract.media_types import is_text

PAGE = 50_000
"""Characters."""


async def read_page(artifacts: ToolArtifacts, artifact: StoredArtifact, start: int) -> str:
    """Return at most `PAGE` characters of the content from `start` on, and where the next page starts."""
    page, position, end = "", 0, start + PAGE
    async for text in _content(artifacts, artifact):
        page += text[max(0, start - position) : max(0, end - position)]
        position += len(text)
        if position > end:
            return f"{page}\n[more from start={end} on]"
    return page or ("[it is empty]" if not position else f"[the content has {position} characters]")


async def _content(artifacts: ToolArtifacts, artifact: StoredArtifact) -> AsyncIterator[str]:
    """Yield all that can be read; a heading tells several parts apart."""
    for part in artifact.parts:
        if len(artifact.parts) > 1:
            yield f"[part {part.index}]\n" if part.index == 0 else f"\n\n[part {part.index}]\n"
        if part.url or (part.kind == "file" and not is_text(part.media_type)):
            yield _description(part)
            continue
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for piece in artifacts.read(artifact.artifact_id, part.index):
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)


def _description(part: ArtifactPart) -> str:
    name = f"{part.filename}, " if part.filename else ""
    if part.url:
        return f"[{name}{part.media_type}: {part.url}]"
    return f"[{name}{part.media_type}, {part.size} bytes: no text]"
