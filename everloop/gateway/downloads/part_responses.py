"""The content of a part over HTTP.

Source: RFC 9110 (conditions, ranges, redirection), RFC 6266 (file names).
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self, cast
from urllib.parse import quote

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from everloop.gateway.downloads.formats import (
    Format,
    Served,
    choose_format,
    csv_pieces,
    served,
)
from everloop.gateway.http.http_errors import NotFoundError, PreconditionError
from everloop.gateway.http.requests import ByteRange, names_tag, read_range
from everloop.gateway.services import Services
from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.artifact_errors import ArtifactReplacedError
from everloop.workflows.contract.artifacts import ArtifactPart, ArtifactStatus, StoredArtifact

# A response that is sent piece by piece, and that never ends well unless all of it was sent.

SENT_AT_ONCE = 256 * 1024
"""Bytes per write: the connection buffers what the client has not read."""

_log = structlog.get_logger()

Pieces = AsyncGenerator[bytes]


class PieceResponse(StreamingResponse):
    """Streams pieces at the client's pace.

    If the source fails, the response stays incomplete: the server closes the connection, so that no
    client takes it for the whole. The same holds if there are fewer bytes than the headers promise, or
    if the process stops. `what` names the content in the log.
    """

    def __init__(
        self, first: bytes, rest: Pieces, status: HTTPStatus, headers: Mapping[str, str], *, what: str
    ) -> None:
        super().__init__(rest, status, headers)
        self._first = first
        self._rest = rest
        self._what = what
        length = headers.get("Content-Length")
        self._length = None if length is None else int(length)

    @classmethod
    async def begin(
        cls, pieces: Pieces, status: HTTPStatus, headers: Mapping[str, str], *, what: str
    ) -> Self:
        """Return the response once its first piece is read; errors until then are raised."""
        return cls(await anext(pieces, b""), pieces, status, headers, what=what)

    async def close(self) -> None:
        """Discard the response unsent."""
        await self._rest.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the server stops, and has waited for as long as it may
            _log.warning("download cut", what=self._what, error="the gateway stops")

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            sent = await self._send_pieces(send)
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the client must not take this for the whole
            _log.error("download cut", what=self._what, exc_info=failure)
            return
        if self._length not in {None, sent}:  # the server would raise, and leave the client waiting
            _log.error("download cut", what=self._what, error=f"{sent} bytes of {self._length}")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_pieces(self, send: Send) -> int:
        first, self._first = self._first, b""
        async with aclosing(self._rest) as rest:
            sent = await _send_piece(first, send)
            del first
            async for piece in rest:
                sent += await _send_piece(piece, send)
        return sent


async def _send_piece(piece: bytes, send: Send) -> int:
    view = memoryview(piece)
    for start in range(0, len(view), SENT_AT_ONCE):
        body = view[start : start + SENT_AT_ONCE]
        await send({"type": "http.response.body", "body": body, "more_body": True})
    return len(view)


ARTIFACT_STATUS = "Everloop-Artifact-Status"
"""Header: a part is still growing (building), complete, or left unfinished (failed)."""

ATTEMPTS = 3
"""Attempts of a download whose artifact is replaced while it starts."""

_SAFE: dict[str, str] = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
"""Headers that keep an agent's content from running as a page of this server."""

_URL = ":/%#?=@[]!$&'()*+,;"
"""Characters of a URL that stay unescaped in a header (RFC 3986 §2.2)."""


@dataclass(frozen=True)
class PartAddress:
    """A part in the store; `context_id` is the key of its context."""

    context_id: str
    artifact_id: str
    index: int

    def __str__(self) -> str:
        return f"part {self.index} of artifact {self.artifact_id!r}"


def _elsewhere(part: ArtifactPart) -> Response:
    """Link to content stored elsewhere: a redirect would send clients to strangers with their keys.

    Without Location no client follows a 300 automatically (RFC 9110 §15.4.1).
    """
    content = {"url": part.url, "mediaType": part.media_type, "filename": part.filename}
    headers = {
        "Cache-Control": "no-store",
        "Link": f'<{quote(part.url, safe=_URL)}>; rel="alternate"',
        **_SAFE,
    }
    return JSONResponse(content, HTTPStatus.MULTIPLE_CHOICES, headers)


@dataclass(frozen=True)
class _Representation:
    """A part as a client would get it: the artifact as looked up, and the format."""

    artifact: StoredArtifact
    part: ArtifactPart
    format: Format

    @property
    def is_closed(self) -> bool:
        """True if the content is final, unless the artifact is replaced."""
        return self.artifact.status is not ArtifactStatus.BUILDING

    @property
    def has_ranges(self) -> bool:
        """True if the length is known and final."""
        return self.is_closed and self.format == "stored"

    @property
    def etag(self) -> str:
        """The strong entity tag: every change of an artifact has its own version."""
        created = int(self.artifact.created_at.timestamp() * 1_000_000)
        suffix = "" if self.format == "stored" else f"-{self.format}"
        return f'"{created}-{self.artifact.version}-{self.part.index}{suffix}"'

    @property
    def served(self) -> Served:
        """Media type and file name."""
        return served(self.artifact.artifact_id, self.part, self.format)

    def headers(self, *, negotiated: bool) -> dict[str, str]:
        """Return all headers except those of the extent; `negotiated`: Accept chose the format."""
        headers = {
            "Content-Type": self.served.media_type,
            "Content-Disposition": self.served.disposition,
            "ETag": self.etag,
            "Cache-Control": "private, no-cache" if self.is_closed else "no-store",
            "Accept-Ranges": "bytes" if self.has_ranges else "none",
            ARTIFACT_STATUS: self.artifact.status.value,
            **_SAFE,
        }
        return headers | {"Vary": "Accept"} if negotiated else headers


async def send_part(services: Services, request: Request, address: PartAddress) -> Response:
    """Answer a GET or HEAD request.

    Raises:
        A2AError: the request is invalid.
        ArtifactError, BlobError: the content is unavailable.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(ArtifactReplacedError):
            return await _send(services, request, address)
    return await _send(services, request, address)


async def _send(services: Services, request: Request, address: PartAddress) -> Response:
    found = await _find(services, request, address)
    if found.part.url:
        return _elsewhere(found.part)
    names_format = "format" in request.query_params
    headers = found.headers(negotiated=found.part.kind == "rows" and not names_format)
    if early := _answer_of_conditions(request, found, headers):
        return early
    if _may_be_linked(request, found) and (link := await _link(services, address, found)):
        return RedirectResponse(link, headers={"Cache-Control": "no-store"})
    requested_range = _read_requested_range(request, found)
    status = HTTPStatus.PARTIAL_CONTENT if requested_range else HTTPStatus.OK
    headers |= _extent(found, requested_range)
    if request.method == "HEAD":
        return StreamingResponse((), status, headers)
    pieces = _pieces(services, address, found, requested_range or ByteRange(0, found.part.size))
    response = await PieceResponse.begin(pieces, status, headers, what=str(address))
    await _check_unchanged(services, address, found, response)
    return response


async def _find(services: Services, request: Request, address: PartAddress) -> _Representation:
    artifact = await services.stores.artifacts.get_artifact(address.context_id, address.artifact_id)
    if address.index >= len(artifact.parts):
        raise NotFoundError(f"no {address} here")
    part = artifact.parts[address.index]
    accept = ",".join(request.headers.getlist("accept"))
    format_ = choose_format(part, request.query_params.get("format"), accept)
    return _Representation(artifact, part, format_)


async def _link(services: Services, address: PartAddress, found: _Representation) -> str | None:
    if not services.stores.link_seconds:
        return None
    terms = LinkTerms(found.served.media_type, found.served.disposition, services.stores.link_seconds)
    return await services.stores.artifacts.link(address.context_id, address.artifact_id, address.index, terms)


async def _pieces(
    services: Services, address: PartAddress, found: _Representation, requested_range: ByteRange
) -> Pieces:
    def read() -> Pieces:
        pieces = services.stores.artifacts.read_part(
            address.context_id,
            address.artifact_id,
            address.index,
            start=requested_range.start,
            end=requested_range.end,
        )
        return cast("Pieces", pieces)

    content = (
        read()
        if found.format == "stored"
        else csv_pieces(read, found.part.row_schema, keeps_formulas=services.settings.csv_formulas)
    )
    async with aclosing(content) as pieces:
        async for piece in pieces:
            yield piece


async def _check_unchanged(
    services: Services, address: PartAddress, found: _Representation, response: PieceResponse
) -> None:
    """Check that the headers describe the content about to be sent.

    An artifact being written may grow meanwhile: its content keeps its beginning.

    Raises:
        ArtifactReplacedError: the artifact was replaced after it was looked up.
    """
    if not found.is_closed:
        return
    now = await services.stores.artifacts.get_artifact(address.context_id, address.artifact_id)
    if (now.created_at, now.version) != (found.artifact.created_at, found.artifact.version):
        await response.close()
        raise ArtifactReplacedError(address.artifact_id, address.index)


def _may_be_linked(request: Request, found: _Representation) -> bool:
    """Return True if the blob store may answer directly: it lacks the tags of conditional requests."""
    is_conditional = "if-match" in request.headers or "if-range" in request.headers
    return found.has_ranges and request.method == "GET" and not is_conditional


def _answer_of_conditions(
    request: Request, found: _Representation, headers: dict[str, str]
) -> Response | None:
    """Return the response if a condition of the request fails, in the order of RFC 9110 §13.2.2."""
    tags = request.headers.getlist("if-match")
    if tags and not names_tag(",".join(tags), found.etag, weakly=False):
        raise PreconditionError(
            f"this is another version than If-Match names: it is {found.etag}", {"ETag": found.etag}
        )
    tags = request.headers.getlist("if-none-match")
    if tags and names_tag(",".join(tags), found.etag, weakly=True):
        own_headers = {name: headers[name] for name in ("ETag", "Cache-Control", "Vary") if name in headers}
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=own_headers)
    return None


def _read_requested_range(request: Request, found: _Representation) -> ByteRange | None:
    """Return the requested range, None for all (RFC 9110 §14.2: of a GET, and if If-Range holds)."""
    header = request.headers.get("range")
    if header is None or request.method != "GET" or not found.has_ranges:
        return None
    if request.headers.get("if-range", found.etag) != found.etag:
        return None
    return read_range(header, found.part.size)


def _extent(found: _Representation, requested_range: ByteRange | None) -> dict[str, str]:
    if found.format != "stored":
        return {}
    if requested_range is None:
        return {"Content-Length": str(found.part.size)}
    return {
        "Content-Length": str(requested_range.end - requested_range.start),
        "Content-Range": f"bytes {requested_range.start}-{requested_range.end - 1}/{found.part.size}",
    }
