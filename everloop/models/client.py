"""HTTP client of providers with OpenAI's protocols, and the common parts of these."""

import asyncio
import json
import re
from abc import abstractmethod
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, ClassVar, cast

import httpx2
import orjson

from everloop.models.catalogue import Provider
from everloop.models.failures import Failures
from everloop.models.interface import SILENCE, Delta, Model, ModelRequest
from everloop.runtime.outbound.policy import is_loopback
from everloop.runtime.outbound.responses import UNCOMPRESSED, AnswerTooLargeError, bounding
from everloop.workflows.contract.messages import Usage
from everloop.workflows.contract.settings import ModelSettings

Object = dict[str, Any]
"""JSON that is not validated yet."""

MAX_STREAM = 256 * 1024 * 1024
"""Bytes of one streamed reply; a token takes some hundred."""

CONNECT_TIMEOUT = 5.0
"""Seconds until a connection to the provider must stand."""

_POOL = httpx2.Limits(max_connections=None, max_keepalive_connections=200, keepalive_expiry=30)
"""Temporal limits concurrent calls. A handshake takes as long as some replies: connections outlive a tool
between two calls, but are closed before the server closes them, usually after a minute."""


def make_client(provider: Provider) -> httpx2.AsyncClient:
    """Return the client of a provider, which costs less than OpenAI's own one; close it at the end."""
    bearer = "Bearer " if provider.key_header.lower() == "authorization" else ""
    key = {provider.key_header: bearer + provider.key} if provider.key else {}
    json_only = {"Accept": "application/json", "Content-Type": "application/json"}
    given = {**UNCOMPRESSED, **json_only, **key, **provider.headers}
    return httpx2.AsyncClient(
        base_url=provider.base_url,
        headers={name.lower(): value for name, value in given.items()},  # the last one of a name counts
        params=dict(provider.query),
        limits=_POOL,
        event_hooks={"response": [bounding(total=MAX_STREAM)]},
        follow_redirects=False,  # keys in other headers than Authorization would be forwarded
        mounts=_reached_directly(provider.base_url),
    )


def _reached_directly(url: str) -> dict[str, None]:
    """Return the mount that bypasses the environment's proxies for a server on this machine."""
    address = httpx2.URL(url)
    return {f"all://{address.netloc.decode()}": None} if is_loopback(address.host) else {}


@asynccontextmanager
async def posted(
    client: httpx2.AsyncClient, url: httpx2.URL, body: Object, settings: ModelSettings
) -> AsyncGenerator[httpx2.Response]:
    """Send a request, and yield the response with its body still unread.

    A path in place of `url` would be joined to the client's own, and parsed, for each call.

    Raises:
        HTTPStatusError: the response is an error; its body has been read.
    """
    try:
        written = orjson.dumps(body)
    except TypeError:  # integers of more than 64 bits
        written = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    # Timeout of a silent connection; the timeouts of tokens are enforced elsewhere.
    longest = max(settings.first_token or SILENCE, settings.between_tokens or SILENCE)
    timeout = httpx2.Timeout(longest.total_seconds(), connect=CONNECT_TIMEOUT)
    headers = settings.extra_headers
    async with client.stream("POST", url, content=written, headers=headers, timeout=timeout) as answer:
        if not answer.is_success:
            await answer.aread()
            answer.raise_for_status()
        yield answer


# Opaque fields, merged from pieces: texts and lists are extended, other values replaced.

_SINGLE = frozenset(["type", "id", "format", "index", "name", "signature", "data"])
"""Texts within an item that are complete wherever they occur; all others come in pieces."""

_RUNNING = {"text", "thinking"}
"""Items that continue the one before, if that is of the same type."""


def merge(whole: Object, piece: Object, single: frozenset[str] = frozenset()) -> int:
    """Merge a piece; texts of the fields `single` are complete in each piece. Return the added characters."""
    size = 0
    for name, value in piece.items():
        had = whole.get(name)
        if isinstance(value, list):
            kept = cast("list[Any]", had if isinstance(had, list) else [])
            size += extend(kept, cast("list[Any]", value))
            whole[name] = kept
        elif isinstance(had, dict) and isinstance(value, dict):
            size += merge(cast("Object", had), cast("Object", value), _SINGLE)
        elif isinstance(had, str) and isinstance(value, str) and name not in single:
            whole[name] = had + value
            size += len(value)
        elif value is not None:
            whole[name] = value
            size += len(value) if isinstance(value, str) and had is None else 0
    return size


def extend(whole: list[Any], pieces: Sequence[Any]) -> int:
    """Append items; one whose index or type matches an earlier item is merged into it.

    Return the number of added characters.
    """
    size = 0
    for piece in pieces:
        if not isinstance(piece, dict):
            whole.append(piece)
            size += len(str(piece))
            continue
        added = cast("Object", piece)
        known: Object | None = next((item for item in whole if _has_index_of(item, added)), None)
        if known is None and whole and _runs_on(whole[-1], added):
            known = whole[-1]
        if known is None:
            whole.append(known := {})
        size += merge(known, added, _SINGLE)
    return size


def _has_index_of(item: Object, piece: Object) -> bool:
    if piece.get("index") is None or piece["index"] != item.get("index") or _kind(piece) != _kind(item):
        return False
    return item.get("id") in {None, piece.get("id", item.get("id"))}


def _runs_on(item: Object, piece: Object) -> bool:
    is_numbered = "index" in piece or "index" in item
    return not is_numbered and _kind(item) == _kind(piece) and _kind(piece) in _RUNNING


def _kind(item: Object) -> object:
    return item.get("type")


def without_flags(extra: Object) -> Object:
    """Leave out booleans: they describe a single piece, not the whole."""
    return {
        name: without_flags(cast("Object", value)) if isinstance(value, dict) else value
        for name, value in extra.items()
        if not isinstance(value, bool)
    }


# The events of a stream.


def read_json(text: str) -> Any:  # noqa: ANN401 -- JSON as it came
    """Parse JSON with orjson, in a third of the time; lone surrogates, and NaN, with the standard library."""
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def is_object(text: str) -> bool:
    """Return True for the text of a complete JSON object."""
    try:
        return text.endswith("}") and isinstance(read_json(text), dict)
    except (ValueError, RecursionError):
        return False


_DRAINED_WITHIN = 0.5
"""Seconds; some servers keep it open."""

DONE = "[DONE]"
"""The data of the event after the last one."""


async def read_events(body: AsyncIterable[bytes]) -> AsyncGenerator[tuple[str, str]]:
    """Yield kind and content of server-sent events, for any line ends and chunk boundaries.

    The kind is `error` for events of that name, and for the field of old servers of llama.cpp, else
    `data`. Comments and other fields are left out, and the last event needs no blank line; a line
    without an end was cut.
    """
    data: list[str] = []
    kind = "data"
    async with aclosing(_whole_lines(body)) as pieces:
        async for lines in pieces:
            for line in lines:
                name, _, value = line.decode(errors="replace").rstrip("\r\n").partition(":")
                value = value.removeprefix(" ")
                if name == "data" and value:  # an empty one keeps the connection alive
                    data.append(value)
                elif name == "event":
                    kind = "error" if value == "error" else "data"
                elif name == "error":
                    yield name, value
                elif data and not line.strip():
                    yield kind, "\n".join(data)
                    data.clear()
                    kind = "data"
    if data:
        yield kind, "\n".join(data)


async def _whole_lines(body: AsyncIterable[bytes]) -> AsyncGenerator[Sequence[bytes]]:
    held: list[bytes] = []
    is_begun = False
    async for piece in body:
        if not is_begun and piece.lstrip().startswith(b"<"):
            raise ValueError("a page in the place of events")
        is_begun |= bool(piece.strip())
        held.append(piece)
        if b"\n" not in piece and b"\r" not in piece and not held[0].endswith(b"\r"):
            continue
        lines = b"".join(held).splitlines(keepends=True)
        # "\r" at the end may be half of "\r\n".
        held = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        yield lines
    if held and held[-1].endswith(b"\r"):
        yield [b"".join(held)]


async def drain(events: AsyncIterable[object]) -> None:
    """Read to the end of the body after the last event, so that the connection can be used again."""
    with suppress(TimeoutError, httpx2.TransportError, AnswerTooLargeError):
        async with asyncio.timeout(_DRAINED_WITHIN):
            async for _ in events:
                pass


# Common parts of the protocols.

OF_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
"""Fields that providers reject in requests without tools."""


def read_usage(usage: Object, sent: str, written: str) -> Usage | None:
    """Return the tokens as counted by the provider; `sent` and `written` are its field names."""
    tokens, replied = _count(usage, f"{sent}_tokens"), _count(usage, f"{written}_tokens")
    if not (tokens or replied):
        return None
    of_sent: Object = usage.get(f"{sent}_tokens_details") or {}
    of_written: Object = usage.get(f"{written}_tokens_details") or {}
    return Usage(
        input_tokens=tokens,
        # Gemini counts its thoughts only in the total.
        output_tokens=max(replied, _count(usage, "total_tokens") - tokens),
        cached_tokens=_count(of_sent, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=_count(of_sent, "cache_write_tokens")
        or _count(usage, "cache_creation_input_tokens"),
        reasoning_tokens=_count(of_written, "reasoning_tokens"),
    )


def _count(counted: Object, name: str) -> int:
    """Return a count; 0 for an invalid value, so that no reply is lost for it."""
    value = counted.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


class HttpModel(Model):
    """A provider with one HTTP request for each reply."""

    path: ClassVar[str]
    """Path after its address."""
    unreadable: ClassVar[tuple[str, str]]
    """Descriptions of an unreadable stream, and of an unreadable complete reply."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._client = make_client(provider)
        self._url = self._client.build_request("POST", self.path).url

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        failures = Failures(self.provider, request, model)
        body = self.body(request, model)
        with failures.translated():
            async with posted(self._client, self._url, body, request.settings) as answer:
                kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()[:100]
                pieces = answer.aiter_raw()
                head = await _head(pieces)
                # Some gateways send either with the content type of the other.
                is_whole = head.startswith(b"{") or (kind == _JSON and not _EVENTS.match(head))
                try:
                    async with aclosing(
                        self.read(_from(head, pieces), failures, is_whole=is_whole)
                    ) as deltas:
                        async for delta in deltas:
                            yield delta
                # Not JSON, JSON of another shape, or JSON that is nested too deep.
                except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
                    instead = "" if kind in {"", _JSON, "text/event-stream"} else f", but {kind!r}"
                    problem = f"{self.unreadable[is_whole]}{instead} ({type(error).__name__})"
                    raise failures.unreadable(problem) from None

    async def close(self) -> None:
        await self._client.aclose()

    @abstractmethod
    def body(self, request: ModelRequest, model: str) -> Object:
        """Return the body of a request."""

    @abstractmethod
    def read(
        self, body: AsyncIterable[bytes], failures: Failures, *, is_whole: bool
    ) -> AsyncGenerator[Delta]:
        """Yield the deltas of a reply; `is_whole`: it is not a stream."""


_JSON = "application/json"
_EVENTS = re.compile(rb"(data|event|id|retry|error)?:")


async def _head(body: AsyncIterable[bytes]) -> bytes:
    """Return the beginning of a body, without a byte order mark and white space."""
    head = b""
    async for piece in body:
        if head := (head + piece).removeprefix(BOM_UTF8).lstrip():
            break
    return head


async def _from(head: bytes, body: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    if head:
        yield head
    async for piece in body:
        yield piece
