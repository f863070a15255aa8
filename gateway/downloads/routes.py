"""Artifacts and results of tool calls over HTTP, for their owner. They take the scope tasks:read.

    GET /artifacts/{context}                         the artifacts of a context, with ?taskId= of one task
    GET /artifacts/{context}/{artifact}              one artifact without its content
    GET /artifacts/{context}/{artifact}/parts/{n}    the content of a part
    GET /results/{task}/{call}                       what a tool call came to, whole

HEAD works too. Ids are percent-encoded path segments. The id of a call is the one that events tell.
"""

import re
from collections.abc import Iterable
from functools import partial
from urllib.parse import quote, unquote

import structlog
from a2a.utils.errors import A2AError, InternalError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import READ, check_scope, is_bound_to_agents, may_use
from everloop.gateway.context import Caller, Viewer
from everloop.gateway.downloads.parts import PartAddress, send_part
from everloop.gateway.errors import STORE_FAILURES, TaskUnknownError, UnavailableNowError
from everloop.gateway.http.errors import NotFoundError, as_a2a, refusal
from everloop.gateway.http.requests import authenticate
from everloop.gateway.services import Services
from everloop.gateway.tasks.artifacts import artifact_json
from everloop.gateway.tasks.snapshots import CHILD_SEPARATOR
from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, BlobsUnavailableError
from everloop.runtime.protocol.tasks import ARTIFACTS, PARTS, RESULTS
from everloop.stores.artifacts.errors import (
    ArtifactIdError,
    ArtifactMissingError,
    ArtifactReplacedError,
    PartIndexError,
)
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.names import context_key, result_artifact

_log = structlog.get_logger()

_INDEX = re.compile(r"\d{1,6}", re.ASCII)
_NOT_STORED = {"Cache-Control": "no-store"}
_SANDBOXED = {**_NOT_STORED, "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}


def download_routes(services: Services) -> list[Route]:
    """Return the routes of downloads: segments are told apart here, because an id may hold a slash."""
    serve, serve_result = partial(_serve, services), partial(_serve_result, services)
    return [
        Route(f"/{ARTIFACTS}", serve, methods=["GET"]),
        Route(f"/{ARTIFACTS}/{{path:path}}", serve, methods=["GET"]),
        Route(f"/{RESULTS}/{{task_id}}/{{call_id}}", serve_result, methods=["GET"]),
    ]


async def _serve(services: Services, request: Request) -> Response:
    segments = _segments(request)
    try:
        return await _answer(services, request, segments)
    except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
        return _refusal(failure, _name(segments))


async def _answer(services: Services, request: Request, segments: list[str]) -> Response:
    caller = await _admit(services, request)
    match segments:
        case [context_id] if context_id:
            return await _list_artifacts(services, caller, context_id, request)
        case [context_id, artifact_id] if context_id:
            return await _describe(services, caller, context_id, artifact_id)
        case [context_id, artifact_id, words, index] if (
            context_id and words == PARTS and _INDEX.fullmatch(index)
        ):
            address = PartAddress(context_key(caller.owner, context_id), artifact_id, int(index))
            if is_bound_to_agents(caller):  # others need no look at what the download looks up itself
                await _seen(services, caller, address.context_id, artifact_id)
            return await send_part(services, request, address)
        case _:
            raise NotFoundError(f"no {_name(segments)} here")


async def _list_artifacts(services: Services, caller: Caller, context_id: str, request: Request) -> Response:
    task_id = request.query_params.get("taskId") or None
    stored = await services.stores.artifacts.list_artifacts(context_key(caller.owner, context_id), task_id)
    artifacts = await _seen_by(services, caller, stored)
    known = [artifact_json(each, context_id, services.settings.url, operations=False) for each in artifacts]
    return JSONResponse({"artifacts": known}, headers=_NOT_STORED)


async def _describe(services: Services, caller: Caller, context_id: str, artifact_id: str) -> Response:
    artifact = await _seen(services, caller, context_key(caller.owner, context_id), artifact_id)
    known = artifact_json(artifact, context_id, services.settings.url, operations=True)
    return JSONResponse(known, headers=_NOT_STORED)


async def _seen(services: Services, caller: Caller, context: str, artifact_id: str) -> StoredArtifact:
    """Return an artifact that the caller may see; for all others there is none.

    Raises:
        ArtifactMissingError: there is none.
    """
    artifact = await services.stores.artifacts.get_artifact(context, artifact_id)
    if not await _seen_by(services, caller, [artifact]):
        raise ArtifactMissingError(artifact_id)
    return artifact


async def _admit(services: Services, request: Request) -> Caller:
    """Return who asks.

    Raises:
        UnauthenticatedError, TooManyRequestsError, UnavailableNowError: as for all HTTP requests.
        ForbiddenError: these credentials are not for reading.
    """
    caller = await authenticate(request, services.http.access)
    check_scope(caller, READ)
    return caller


async def _seen_by(
    services: Services, caller: Caller, artifacts: Iterable[StoredArtifact]
) -> list[StoredArtifact]:
    """Return those artifacts whose agents the caller has to do with.

    The agent is that of the task, as its view tells it; what a sub-agent wrote belongs to the task that
    asked it. Without a view nobody whose scopes name agents sees the artifact.
    """
    if not is_bound_to_agents(caller):
        return list(artifacts)
    known: dict[str, bool] = {}
    seen: list[StoredArtifact] = []
    for artifact in artifacts:
        task_id = artifact.task_id.partition(CHILD_SEPARATOR)[0]
        if task_id not in known:
            snapshot = await services.views.load(task_id, most=0)
            known[task_id] = snapshot is not None and may_use(caller, snapshot.view.agent_id)
        if known[task_id]:
            seen.append(artifact)
    return seen


async def _serve_result(services: Services, request: Request) -> Response:
    task_id, call_id = request.path_params["task_id"], request.path_params["call_id"]
    try:
        return await _result(services, request, task_id, call_id)
    except TaskUnknownError:
        return refusal(_missing(call_id))
    except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
        return _refusal(failure, f"result of call {call_id!r}")


async def _result(services: Services, request: Request, task_id: str, call_id: str) -> Response:
    caller = await _admit(services, request)
    # The agent is the one that the view names.
    known = await services.views.load(task_id, most=0)
    if known is None or not may_use(caller, known.view.agent_id):
        raise _missing(call_id)
    snapshot = await services.snapshots.open(task_id, Viewer(caller.owner, known.view.agent_id))
    result = await services.steps.result(snapshot.view, call_id)
    if result is None:
        raise _missing(call_id)
    if result.kept:
        context = context_key(snapshot.view.owner, snapshot.view.context_id)
        artifact_id = result_artifact(task_id, result.kept)
        return await send_part(services, request, PartAddress(context, artifact_id, 0))
    name = quote(f"{result.name}-{call_id}.txt", safe="")
    headers = {**_SANDBOXED, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    content = result.content.encode(errors="replace")
    return Response(content, headers=headers, media_type="text/plain; charset=utf-8")


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


def _missing(call_id: str) -> NotFoundError:
    return NotFoundError(f"no result of call {call_id!r} here")


# What a client is told when something cannot be downloaded.

RETRY_AFTER = 2
"""Seconds after which a client may ask a store again that did not answer."""

_UNAVAILABLE = (ArtifactReplacedError, BlobsUnavailableError, *STORE_FAILURES)

_DAMAGES: dict[type[Exception], str] = {
    BlobCorruptError: "damaged: its checksum is another one than when it was stored",
    BlobMissingError: "lost: the store no longer has it",
}


def _refusal(failure: Exception, what: str) -> Response:
    """Return the answer to a failure; `what` names in words of the client what could not be had."""
    return refusal(_explain(failure, what) or as_a2a(failure))


def _explain(failure: Exception, what: str) -> A2AError | None:
    if isinstance(failure, (ArtifactMissingError, ArtifactIdError, PartIndexError)):
        return NotFoundError(f"no {what} here")
    if isinstance(failure, _UNAVAILABLE):
        _log.warning("download cannot be served now", what=what, error=type(failure).__name__)
        text = "the artifact store cannot tell now; nothing is lost: ask again in a few seconds"
        return UnavailableNowError(text, retry_after=RETRY_AFTER)
    if damage := next((words for kind, words in _DAMAGES.items() if isinstance(failure, kind)), ""):
        _log.error("content of an artifact is lost", what=what, error=str(failure))
        return InternalError(f"{what} is {damage}")
    return None
