"""A provider that speaks one of OpenAI's protocols: its client, and what these protocols have in common."""

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
"""JSON as it came: nobody has looked whether it is what it should be."""

MAX_STREAM = 256 * 1024 * 1024
"""Bytes of one streamed reply; a token takes some hundred."""

CONNECT_TIMEOUT = 5.0
"""Seconds until a connection to the provider must stand."""

_POOL = httpx2.Limits(max_connections=None, max_keepalive_connections=200, keepalive_expiry=30)
"""Temporal bounds how many calls there are at once. A handshake takes as long as some replies: connections
outlive a tool between two calls, but not those that servers close first, after a minute as a rule."""


def make_client(provider: Provider) -> httpx2.AsyncClient:
    """Return the client of a provider, which costs less than OpenAI's own one; close it at the end."""
    bearer = "Bearer " if provider.key_header.lower() == "authorization" else ""
    key = {provider.key_header: bearer + provider.key} if provider.key else {}
    json_only = {"Accept": "application/json", "Content-Type": "application/json"}
    given = {**UNCOMPRESSED, **json_only, **key, **provider.headers}
    return httpx2.AsyncClient(
        base_url=provider.base_url,
        headers={name.lower(): value for name, value in given.items()},  # the last one of a name stands
        params=dict(provider.query),
        limits=_POOL,
        event_hooks={"response": [bounding(total=MAX_STREAM)]},
        follow_redirects=False,  # keys in other headers than Authorization would go along
        mounts=_reached_directly(provider.base_url),
    )


def _reached_directly(url: str) -> dict[str, None]:
    """Return what keeps the proxies of the environment from a server on this machine."""
    address = httpx2.URL(url)
    return {f"all://{address.netloc.decode()}": None} if is_loopback(address.host) else {}


@asynccontextmanager
async def posted(
    client: httpx2.AsyncClient, url: httpx2.URL, body: Object, settings: ModelSettings
) -> AsyncGenerator[httpx2.Response]:
    """Send a request, and yield the answer, of which the body is still to come.

    A path in place of `url` would be put behind the client's own, and parsed, for each call.

    Raises:
        HTTPStatusError: it is an error; its body has been read.
    """
    try:
        written = orjson.dumps(body)
    except TypeError:  # integers of more than 64 bits
        written = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    # How long a connection may be silent; what tokens have to keep to is not seen from here.
    longest = max(settings.first_token or SILENCE, settings.between_tokens or SILENCE)
    timeout = httpx2.Timeout(longest.total_seconds(), connect=CONNECT_TIMEOUT)
    headers = settings.extra_headers
    async with client.stream("POST", url, content=written, headers=headers, timeout=timeout) as answer:
        if not answer.is_success:
            await answer.aread()
            answer.raise_for_status()
        yield answer


# Fields that nobody reads, put together of pieces: texts and lists go on, the rest is replaced.

_SINGLE = frozenset(["type", "id", "format", "index", "name", "signature", "data"])
"""Texts within an item that are whole wherever they stand; all others come in pieces."""

_RUNNING = {"text", "thinking"}
"""Items that go on with the one before, if that is of the same type."""


def merge(whole: Object, piece: Object, single: frozenset[str] = frozenset()) -> int:
    """Add a piece; texts of the fields `single` are whole in each piece. Return how many characters came."""
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
    """Add items; one that says by its index or its type that it goes on with another is joined to that.

    Return how many characters came.
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
    """Leave out what is true or false: it says what one piece is, and nothing of the whole."""
    return {
        name: without_flags(cast("Object", value)) if isinstance(value, dict) else value
        for name, value in extra.items()
        if not isinstance(value, bool)
    }


# The events of a stream.


def read_json(text: str) -> Any:  # noqa: ANN401 -- JSON as it came
    """Return JSON as orjson reads it, in a third of the time; halves of characters, and NaN, it does not."""
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def is_object(text: str) -> bool:
    """Whether a text is a whole JSON object."""
    try:
        return text.endswith("}") and isinstance(read_json(text), dict)
    except (ValueError, RecursionError):
        return False


_DRAINED_WITHIN = 0.5
"""Seconds; some servers leave it open."""

DONE = "[DONE]"
"""The data of the event behind the last one."""


async def read_events(body: AsyncIterable[bytes]) -> AsyncGenerator[tuple[str, str]]:
    """Yield kind and content of server-sent events, however lines end and wherever bytes are cut.

    The kind is `error` for events of that name, and for the field that old servers of llama.cpp have, else
    `data`. Comments and other fields are left out, and a blank line is not waited for at the end of the body;
    a line that has no end was cut.
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
    """Read what follows on the last event, which is the end of the body: the connection can be used again."""
    with suppress(TimeoutError, httpx2.TransportError, AnswerTooLargeError):
        async with asyncio.timeout(_DRAINED_WITHIN):
            async for _ in events:
                pass


# What the protocols have in common.

OF_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
"""Fields that providers refuse where no tools are offered."""


def read_usage(usage: Object, sent: str, written: str) -> Usage | None:
    """Return the tokens as far as the provider has counted them; `sent` and `written` are its words."""
    tokens, replied = _count(usage, f"{sent}_tokens"), _count(usage, f"{written}_tokens")
    if not (tokens or replied):
        return None
    of_sent: Object = usage.get(f"{sent}_tokens_details") or {}
    of_written: Object = usage.get(f"{written}_tokens_details") or {}
    return Usage(
        input_tokens=tokens,
        # Gemini counts its thoughts in the total alone.
        output_tokens=max(replied, _count(usage, "total_tokens") - tokens),
        cached_tokens=_count(of_sent, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=_count(of_sent, "cache_write_tokens")
        or _count(usage, "cache_creation_input_tokens"),
        reasoning_tokens=_count(of_written, "reasoning_tokens"),
    )


def _count(counted: Object, name: str) -> int:
    """Return how many there are; what is no number is 0: no reply is lost for it."""
    value = counted.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


class HttpModel(Model):
    """A provider that is asked by one request for each reply."""

    path: ClassVar[str]
    """Behind its address."""
    unreadable: ClassVar[tuple[str, str]]
    """What it did that cannot be read: with a stream, and with a whole reply in the place of one."""

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
                # Some gateways give either under the name of the other.
                is_whole = head.startswith(b"{") or (kind == _JSON and not _EVENTS.match(head))
                try:
                    async with aclosing(
                        self.read(_from(head, pieces), failures, is_whole=is_whole)
                    ) as deltas:
                        async for delta in deltas:
                            yield delta
                # No JSON, JSON of another shape, or JSON that is nested too deep.
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
        """Yield a reply; `is_whole`: it is no stream."""


_JSON = "application/json"
_EVENTS = re.compile(rb"(data|event|id|retry|error)?:")


async def _head(body: AsyncIterable[bytes]) -> bytes:
    """Return the beginning of a body, without what stands before its first word."""
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
