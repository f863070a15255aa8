"""Artifacts over HTTP, for the owner of their context. They take the scope tasks:read.

    GET /artifacts/{context}                         the artifacts of a context, with ?taskId= of one task
    GET /artifacts/{context}/{artifact}              one artifact without its content
    GET /artifacts/{context}/{artifact}/parts/{n}    the content of a part

HEAD works too. Ids are percent-encoded path segments.
"""

import re
from http import HTTPStatus
from urllib.parse import unquote

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.scopes import is_bound_to_agents
from everloop.gateway.backends import Stores
from everloop.gateway.context import Caller
from everloop.gateway.downloads.errors import DownloadError, error_response
from everloop.gateway.downloads.guard import DownloadAccess
from everloop.gateway.downloads.parts import PartAddress, PartDownload
from everloop.runtime.protocol.addresses import ARTIFACTS, PARTS, artifact_url, part_url
from everloop.stores.artifacts.interface import ArtifactMissingError
from everloop.workflows.contract.artifacts import ArtifactPart, Operation, StoredArtifact
from everloop.workflows.contract.names import context_key

# What is known of artifacts, as JSON for clients. Pure.


def artifact_json(
    artifact: StoredArtifact, context_id: str, public_url: str, *, operations: bool
) -> dict[str, JsonValue]:
    """Return an artifact without its content; `context_id` is the client's. Names are written as in A2A."""
    known: dict[str, JsonValue] = {
        "artifactId": artifact.artifact_id,
        "contextId": context_id,
        "taskId": artifact.task_id,
        "name": artifact.name,
        "description": artifact.description,
        "status": artifact.status.value,
        "isInput": artifact.is_input,
        "version": artifact.version,
        "createdAt": artifact.created_at.isoformat(),
        "updatedAt": artifact.updated_at.isoformat(),
        "completedAt": artifact.completed_at.isoformat() if artifact.completed_at else None,
        "url": artifact_url(public_url, context_id, artifact.artifact_id),
        "parts": [
            _part_json(part)
            | {"url": part.url or part_url(public_url, context_id, artifact.artifact_id, part.index)}
            for part in artifact.parts
        ],
    }
    if operations:
        known["lastChunkIndex"] = artifact.last_chunk_index
        known["operations"] = [_operation_json(operation) for operation in artifact.operations]
    return known


def _part_json(part: ArtifactPart) -> dict[str, JsonValue]:
    known: dict[str, JsonValue] = {
        "index": part.index,
        "kind": part.kind,
        "mediaType": part.media_type,
        "filename": part.filename,
        "size": part.size,
    }
    if part.kind == "rows":
        known |= {"rows": part.rows, "rowSchema": part.row_schema}
    return known


def _operation_json(operation: Operation) -> JsonValue:
    return {"kind": operation.kind, "at": operation.at.isoformat(), "index": operation.index}


_INDEX = re.compile(r"\d{1,6}", re.ASCII)
_NOT_STORED = {"Cache-Control": "no-store"}


class Downloads:
    """Serves the artifacts of a client's own contexts. `public_url` ends with a slash."""

    def __init__(
        self,
        stores: Stores,
        public_url: str,
        access: AccessControl | None = None,
        *,
        keeps_formulas: bool = False,
    ) -> None:
        self._access = DownloadAccess(access or AccessControl(), stores.views)
        self._artifacts = stores.artifacts
        self._parts = PartDownload(stores.artifacts, stores.link_seconds, keeps_formulas=keeps_formulas)
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
        caller = await self._access.admit(request)
        match segments:
            case [context_id] if context_id:
                return await self._list(caller, context_id, request)
            case [context_id, artifact_id]:
                return await self._describe(caller, context_id, artifact_id)
            case [context_id, artifact_id, words, index] if words == PARTS and _INDEX.fullmatch(index):
                address = PartAddress(context_key(caller.owner, context_id), artifact_id, int(index))
                if is_bound_to_agents(caller):  # others need no look at what the download looks up itself
                    await self._seen(caller, address.context_id, artifact_id)
                return await self._parts.send(request, address)
            case _:
                raise DownloadError(HTTPStatus.NOT_FOUND, f"no {_name(segments)} here")

    async def _list(self, caller: Caller, context_id: str, request: Request) -> Response:
        task_id = request.query_params.get("taskId") or None
        stored = await self._artifacts.list_artifacts(context_key(caller.owner, context_id), task_id)
        artifacts = await self._access.seen_by(caller, stored)
        known = [artifact_json(each, context_id, self._public_url, operations=False) for each in artifacts]
        return JSONResponse({"artifacts": known}, headers=_NOT_STORED)

    async def _describe(self, caller: Caller, context_id: str, artifact_id: str) -> Response:
        artifact = await self._seen(caller, context_key(caller.owner, context_id), artifact_id)
        known = artifact_json(artifact, context_id, self._public_url, operations=True)
        return JSONResponse(known, headers=_NOT_STORED)

    async def _seen(self, caller: Caller, context: str, artifact_id: str) -> StoredArtifact:
        """Return an artifact that the caller may see; for all others there is none.

        Raises:
            ArtifactMissingError: there is none.
        """
        artifact = await self._artifacts.get_artifact(context, artifact_id)
        if not await self._access.seen_by(caller, [artifact]):
            raise ArtifactMissingError(artifact_id)
        return artifact


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
