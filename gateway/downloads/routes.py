"""Artifacts and results of tool calls over HTTP, for their owner. They take the scope tasks:read.

    GET /artifacts/{context}                         the artifacts of a context, with ?taskId= of one task
    GET /artifacts/{context}/{artifact}              one artifact without its content
    GET /artifacts/{context}/{artifact}/parts/{n}    the content of a part
    GET /results/{task}/{call}                       what a tool call came to, whole

HEAD works too. Ids are percent-encoded path segments. The id of a call is the one that events tell.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

import structlog
from a2a.utils.errors import A2AError, InternalError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.scopes import READ, check_scope, is_bound_to_agents, may_use
from everloop.gateway.context import Caller, Viewer
from everloop.gateway.downloads.parts import PartAddress, PartDownload
from everloop.gateway.errors import STORE_FAILURES, TaskUnknownError, UnavailableNowError
from everloop.gateway.http.errors import NotFoundError, as_a2a, refusal
from everloop.gateway.http.requests import recognise
from everloop.gateway.settings import GatewaySettings, Stores
from everloop.gateway.tasks.artifacts import artifact_json
from everloop.gateway.tasks.snapshots import CHILD_SEPARATOR, Snapshots
from everloop.gateway.tasks.steps import Steps
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


class Downloads:
    """Serves what is in a client's own contexts, and what the tool calls of its own tasks came to.

    Artifacts are of an owner's contexts, whatever agent wrote them; whoever has to do with some agents only
    sees what is theirs.
    """

    def __init__(
        self,
        stores: Stores,
        settings: GatewaySettings,
        access: AccessControl,
        snapshots: Snapshots,
        steps: Steps,
    ) -> None:
        self._access = access
        self._views = stores.views
        self._artifacts = stores.artifacts
        self._parts = PartDownload(
            stores.artifacts, stores.link_seconds, keeps_formulas=settings.csv_formulas
        )
        self._public_url = settings.url
        self._snapshots = snapshots
        self._steps = steps

    @property
    def routes(self) -> list[Route]:
        """All addresses: the segments are told apart here, because an id may hold a slash."""
        addresses = f"/{ARTIFACTS}", f"/{ARTIFACTS}/{{path:path}}"
        return [
            *(Route(address, self._serve, methods=["GET"]) for address in addresses),
            Route(f"/{RESULTS}/{{task_id}}/{{call_id}}", self._serve_result, methods=["GET"]),
        ]

    async def _serve(self, request: Request) -> Response:
        segments = _segments(request)
        try:
            return await self._answer(request, segments)
        except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
            return _refusal(failure, _name(segments))

    async def _answer(self, request: Request, segments: list[str]) -> Response:
        caller = await self._admit(request)
        match segments:
            case [context_id] if context_id:
                return await self._list(caller, context_id, request)
            case [context_id, artifact_id] if context_id:
                return await self._describe(caller, context_id, artifact_id)
            case [context_id, artifact_id, words, index] if (
                context_id and words == PARTS and _INDEX.fullmatch(index)
            ):
                address = PartAddress(context_key(caller.owner, context_id), artifact_id, int(index))
                if is_bound_to_agents(caller):  # others need no look at what the download looks up itself
                    await self._seen(caller, address.context_id, artifact_id)
                return await self._parts.send(request, address)
            case _:
                raise NotFoundError(f"no {_name(segments)} here")

    async def _list(self, caller: Caller, context_id: str, request: Request) -> Response:
        task_id = request.query_params.get("taskId") or None
        stored = await self._artifacts.list_artifacts(context_key(caller.owner, context_id), task_id)
        artifacts = await self._seen_by(caller, stored)
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
        if not await self._seen_by(caller, [artifact]):
            raise ArtifactMissingError(artifact_id)
        return artifact

    async def _admit(self, request: Request) -> Caller:
        """Return who asks.

        Raises:
            UnauthenticatedError, TooManyRequestsError, UnavailableNowError: as for all HTTP requests.
            ForbiddenError: these credentials are not for reading.
        """
        caller = await recognise(request, self._access)
        check_scope(caller, READ)
        return caller

    async def _seen_by(self, caller: Caller, artifacts: Iterable[StoredArtifact]) -> list[StoredArtifact]:
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
                snapshot = await self._views.load(task_id, most=0)
                known[task_id] = snapshot is not None and may_use(caller, snapshot.view.agent_id)
            if known[task_id]:
                seen.append(artifact)
        return seen

    async def _serve_result(self, request: Request) -> Response:
        task_id, call_id = request.path_params["task_id"], request.path_params["call_id"]
        try:
            return await self._result(request, task_id, call_id)
        except TaskUnknownError:
            return refusal(_missing(call_id))
        except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
            return _refusal(failure, f"result of call {call_id!r}")

    async def _result(self, request: Request, task_id: str, call_id: str) -> Response:
        caller = await self._admit(request)
        # The agent is the one that the view names.
        known = await self._views.load(task_id, most=0)
        if known is None or not may_use(caller, known.view.agent_id):
            raise _missing(call_id)
        snapshot = await self._snapshots.open(task_id, Viewer(caller.owner, known.view.agent_id))
        result = await self._steps.result(snapshot.view, call_id)
        if result is None:
            raise _missing(call_id)
        if result.kept:
            context = context_key(snapshot.view.owner, snapshot.view.context_id)
            artifact_id = result_artifact(task_id, result.kept)
            return await self._parts.send(request, PartAddress(context, artifact_id, 0))
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
