"""Results of MCP tools: a text for the model, and artifacts."""

import asyncio
import hashlib
import mimetypes
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import assert_never
from urllib.parse import parse_qsl, unquote, urlsplit

import structlog
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from everloop.agents.mcp.mcp_errors import McpError, McpToolError
from everloop.agents.tool_context import ToolArtifacts
from everloop.runtime.outbound.policy import hide, secret_words

MOST_LINKS = 20
"""Maximum number of linked resources to fetch; of others the model gets the address."""

Read = Callable[[str], Awaitable[ReadResourceResult]]
"""Reads a resource of the server, within the remaining time of the call."""

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)

_log = structlog.get_logger()


class ResultWriter:
    """Writes the result of one call: texts go to the model, files into artifacts that the text names.

    The ids of the artifacts are derived from `key`, which is the same for each attempt of the call, so
    a retry replaces them.
    """

    def __init__(self, tool: str, key: str, artifacts: ToolArtifacts, read: Read) -> None:
        self._tool = tool
        self._id = f"{tool}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
        self._artifacts = artifacts
        self._read = read
        self._files = 0
        self._links = 0

    async def text_of(self, result: CallToolResult) -> str:
        """Return the text for the model.

        Raises:
            McpToolError: the tool reported a failure.
        """
        if result.is_error:
            problem = _with_structured(list(_texts_in(result)), result)
            raise McpToolError(problem or "the tool failed and did not say why")
        return _with_structured([await self._text_of(block) for block in result.content], result)

    async def _text_of(self, block: ContentBlock) -> str:
        match block:
            case TextContent():
                return block.text
            case ImageContent() | AudioContent():
                return await self._keep(_decoded(block.data), block.mime_type, is_shown=True)
            case EmbeddedResource():
                return await self._keep_resource(block.resource)
            case ResourceLink():
                return await self._fetch(block)
            case _:
                assert_never(block)

    async def _fetch(self, link: ResourceLink) -> str:
        """Store the resource of a link; if the server does not return it, name the link."""
        text = ", ".join(filter(None, (link.title or link.name, link.description)))
        self._links += 1
        if self._links > MOST_LINKS:
            return f"[resource {link.uri}: {text}]"
        try:
            contents = (await self._read(link.uri)).contents
        except McpError:
            return f"[resource {link.uri}: {text}; it could not be read]"
        texts = [await self._keep_resource(content, link) for content in contents]
        return "\n".join([f"[resource {link.uri}: {text}]", *texts])

    async def _keep_resource(
        self, resource: TextResourceContents | BlobResourceContents, link: ResourceLink | None = None
    ) -> str:
        filename = PurePosixPath(urlsplit(resource.uri).path).name
        name = (link.title or link.name) if link else filename
        given = resource.mime_type or (link and link.mime_type)
        if isinstance(resource, BlobResourceContents):
            return await self._keep(
                _decoded(resource.blob), given or "application/octet-stream", filename, name
            )
        note = await self._keep(resource.text, given or "text/plain", filename, name)
        # Embedded resources are for the model; linked ones are optional reading.
        return note if link or not resource.text else f"{note}\n{resource.text}"

    async def _keep(
        self,
        content: str | bytes | None,
        media_type: str,
        filename: str = "",
        name: str = "",
        *,
        is_shown: bool = False,
    ) -> str:
        """Write an artifact and return its line; the tool has run, so a failure is not an error.

        `content` None: it was unreadable. `is_shown`: the model gets it, too; of many only the first.
        """
        self._files += 1
        artifact_id = f"{self._id}-{self._files}"
        extension = mimetypes.guess_extension(media_type.partition(";")[0]) or ""
        filename = filename or f"{self._tool}-{self._files}{extension}"
        if content is None:
            return f"[{filename}, {media_type}: lost: the server sent it as something else than base64]"
        size = len(content) if isinstance(content, bytes) else len(content.encode())
        what = f"{filename}, {media_type}, {size} bytes"
        try:
            await self._artifacts.write_file(
                artifact_id, content, media_type=media_type, filename=filename, name=name
            )
            if is_shown:
                with suppress(ValueError):
                    await self._artifacts.show(artifact_id)
        except Exception as error:  # noqa: BLE001 -- this room does not import the errors of stores
            _log.warning("file of an MCP tool not kept", tool=self._tool, error_type=type(error).__name__)
            return f"[{what}: it could not be kept as an artifact]"
        return f"[{what}: artifact {artifact_id!r}]"


def _with_structured(pieces: Sequence[str], result: CallToolResult) -> str:
    """Return texts with the structured result, unless one of them repeats it, as many servers do."""
    if (structured := _structured(result)) is None:
        return "\n".join(pieces)
    return "\n".join(
        [*(each for each in pieces if not _says(each, structured)), to_json(structured).decode()]
    )


def _texts_in(result: CallToolResult) -> Iterable[str]:
    for block in result.content:
        if isinstance(block, EmbeddedResource) and isinstance(block.resource, TextResourceContents):
            yield block.resource.text
        elif isinstance(block, TextContent):
            yield block.text


def _text_in(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def _structured(result: CallToolResult) -> JsonValue:
    """Return the structured result; None if it only repeats the text."""
    structured: JsonValue = result.structured_content
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        alone = structured["result"]  # FastMCP wraps other results into an object
        if len(result.content) <= 1 and _says(_text_in(result), alone):
            return None
    return structured


def _says(text: str, value: JsonValue) -> bool:
    """Return True if a text is this JSON value, or equals it as a string."""
    try:
        return text == value or _JSON.validate_json(text) == value
    except ValidationError:
        return False


def _decoded(data: str) -> bytes | None:
    """Return a file; None if invalid. Some servers cut it into lines, or send a whole data URL."""
    plain = data.partition(",")[2] if data.startswith("data:") else data
    try:
        return b64decode("".join(plain.split()), validate=True)
    except (Base64Error, ValueError):
        return None


# Progress notifications of a server.


class LatestProgress:
    """Publishes the newest progress, one after the other; skips updates that arrive meanwhile."""

    def __init__(self, publish: Callable[[str], Awaitable[None]]) -> None:
        self._publish = publish
        self._next = ""
        self._has_stopped = False
        self._publishing = asyncio.Lock()

    async def update(self, progress: float, total: float | None, message: str | None) -> None:
        """Accept a progress notification."""
        if self._has_stopped:
            return
        self._next = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        async with self._publishing:
            text, self._next = self._next, ""
            if text and not self._has_stopped:
                await self._publish(text)

    async def flush(self) -> None:
        """Wait until all accepted updates are published."""
        async with self._publishing:  # earlier updates are before us in the queue
            return

    def stop(self) -> None:
        """Publish nothing more."""
        self._has_stopped = True


# Redaction of the secrets of an MCP server in its texts.

_TELLING_NAME = re.compile(r"auth|cookie|credential|key|pass|secret|session|token", re.IGNORECASE)


class Concealment:
    """Redacts the secrets that a server received: headers, environment variables, and secrets in its URL.

    In errors that is every value, in results only those with the name of a secret (such as
    Authorization, or API_KEY): results may well mention a tenant of a header.
    """

    def __init__(self, url: str, *given: Mapping[str, str]) -> None:
        pairs = [pair for values in given for pair in values.items()]
        in_url = list(_secrets_of(url))
        secret = [value for name, value in pairs if _TELLING_NAME.search(name)]
        self._in_results = secret_words([*in_url, *secret])
        self._in_errors = secret_words([*in_url, *(value for _, value in pairs)])

    def in_error(self, text: str) -> str:
        """Return the text of an error without any value that the server received."""
        return hide(self._in_errors, text)

    def in_result(self, text: str) -> str:
        """Return the result of a tool without the secrets that the server received."""
        return hide(self._in_results, text)


def _secrets_of(url: str) -> Iterable[str]:
    parts = urlsplit(url)
    yield unquote(parts.password or "")
    for _, value in parse_qsl(parts.query):
        yield value
