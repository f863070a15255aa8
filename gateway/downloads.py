"""Artifacts over HTTP, for the owner of their context.

    GET /artifacts/{context}                         the artifacts of a context, with ?taskId= of one task
    GET /artifacts/{context}/{artifact}              one artifact without its content
    GET /artifacts/{context}/{artifact}/parts/{n}    the content of a part

HEAD works too. Ids are percent-encoded path segments.
"""

import re
from http import HTTPStatus
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.artifact_json import artifact_json
from gateway.callers import caller_of_request
from gateway.download_errors import DownloadError, error_response
from gateway.part_download import PartAddress, PartDownload
from gateway.stores import Stores
from stores.part_urls import ARTIFACTS, PARTS
from workflows.contract.names import context_key

_INDEX = re.compile(r"\d{1,6}", re.ASCII)
_NOT_STORED = {"Cache-Control": "no-store"}


class Downloads:
    """Serves the artifacts of a client's own contexts. `public_url` ends with a slash."""

    def __init__(self, stores: Stores, public_url: str) -> None:
        self._artifacts = stores.artifacts
        self._parts = PartDownload(stores.artifacts, stores.link_seconds)
        self._public_url = public_url

    @property
    def routes(self) -> list[Route]:
        """All addresses: the segments are told apart here, because an id may hold a slash."""
        addresses = f"/{ARTIFACTS}", f"/{ARTIFACTS}/{{path:path}}"
        return [Route(address, self._serve, methods=["GET"]) for address in addresses]

    async def _serve(self, request: Request) -> Response:
        segments = _segments(request)
        try:
            return await self._answer(request, segments)
        except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
            return error_response(failure, _name(segments))

    async def _answer(self, request: Request, segments: list[str]) -> Response:
        owner = caller_of_request(request).owner
        match segments:
            case [context_id] if context_id:
                return await self._list(context_key(owner, context_id), context_id, request)
            case [context_id, artifact_id]:
                return await self._describe(context_key(owner, context_id), context_id, artifact_id)
            case [context_id, artifact_id, words, index] if words == PARTS and _INDEX.fullmatch(index):
                address = PartAddress(context_key(owner, context_id), artifact_id, int(index))
                return await self._parts.send(request, address)
            case _:
                raise DownloadError(HTTPStatus.NOT_FOUND, f"no {_name(segments)} here")

    async def _list(self, context: str, context_id: str, request: Request) -> Response:
        task_id = request.query_params.get("taskId") or None
        artifacts = await self._artifacts.list_artifacts(context, task_id)
        known = [artifact_json(each, context_id, self._public_url, operations=False) for each in artifacts]
        return JSONResponse({"artifacts": known}, headers=_NOT_STORED)

    async def _describe(self, context: str, context_id: str, artifact_id: str) -> Response:
        artifact = await self._artifacts.get_artifact(context, artifact_id)
        known = artifact_json(artifact, context_id, self._public_url, operations=True)
        return JSONResponse(known, headers=_NOT_STORED)


def _segments(request: Request) -> list[str]:
    """Return the path behind /artifacts/, segment by segment, decoded after it was split."""
    raw = bytes(request.scope["raw_path"]).decode("ascii", errors="replace")
    return [unquote(segment) for segment in raw.split("/")[2:]]


def _name(segments: list[str]) -> str:
    """Name what is asked for in words of the client."""
    match segments:
        case [context_id] if context_id:
            return f"artifacts of context {context_id!r}"
        case [_, artifact_id]:
            return f"artifact {artifact_id!r}"
        case [_, artifact_id, words, index] if words == PARTS:
            return f"part {index} of artifact {artifact_id!r}"
        case _:
            return "such address"
