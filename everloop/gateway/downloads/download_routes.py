"""Artifacts and results of tool calls over HTTP, for their owner, with the scope tasks:read.

    GET /artifacts/{context}                         the artifacts of a context, with ?taskId= of one task
    GET /artifacts/{context}/{artifact}              one artifact without its content
    GET /artifacts/{context}/{artifact}/parts/{n}    the content of a part
    GET /results/{task}/{call}                       the complete result of a tool call

HEAD works too. Events have the ids of calls.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from urllib.parse import quote

import structlog
from a2a.utils.errors import InternalError
from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import is_bound_to_agents, may_use
from everloop.gateway.context import Caller, Viewer
from everloop.gateway.downloads.part_responses import PartAddress, send_part
from everloop.gateway.errors import STORE_FAILURES, TaskUnknownError, UnavailableNowError
from everloop.gateway.http.http_calls import HttpCall, answer, call_route
from everloop.gateway.http.http_errors import NotFoundError
from everloop.gateway.services import Services
from everloop.gateway.tasks.artifact_json import artifact_json
from everloop.gateway.tasks.snapshots import CHILD_SEPARATOR
from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, BlobsUnavailableError
from everloop.runtime.protocol.a2a_tasks import ARTIFACTS, PARTS, RESULTS
from everloop.stores.artifacts.artifact_errors import (
    ArtifactIdError,
    ArtifactMissingError,
    ArtifactReplacedError,
    PartIndexError,
)
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.names import context_key, result_artifact

_log = structlog.get_logger()

_INDEX = re.compile(r"\d{1,6}", re.ASCII)
_SANDBOXED = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox",
}


def download_routes(services: Services) -> list[Route]:
    def route(path: str, handler: Callable[[Services, HttpCall], Awaitable[Response]]) -> Route:
        return call_route(services.http, path, GET=partial(handler, services))

    return [
        route(f"/{ARTIFACTS}/{{context}}", _list_artifacts),
        route(f"/{ARTIFACTS}/{{context}}/{{artifact}}", _describe),
        route(f"/{ARTIFACTS}/{{context}}/{{artifact}}/{PARTS}/{{index}}", _send),
        route(f"/{RESULTS}/{{task}}/{{call}}", _send_result),
    ]


async def _list_artifacts(services: Services, call: HttpCall) -> Response:
    context_id = call.id("context")
    with _translated(f"artifacts of context {context_id!r}"):
        stored = await services.stores.artifacts.list_artifacts(
            context_key(call.owner, context_id), call.query("taskId") or None
        )
        visible = await _visible_to(services, call.caller, stored)
    url = services.settings.url
    return answer({"artifacts": [artifact_json(each, context_id, url, operations=False) for each in visible]})


async def _describe(services: Services, call: HttpCall) -> Response:
    context_id, artifact_id = call.id("context"), call.id("artifact")
    with _translated(f"artifact {artifact_id!r}"):
        artifact = await _find_visible(
            services, call.caller, context_key(call.owner, context_id), artifact_id
        )
    return answer(artifact_json(artifact, context_id, services.settings.url, operations=True))


async def _send(services: Services, call: HttpCall) -> Response:
    context, artifact_id = context_key(call.owner, call.id("context")), call.id("artifact")
    index = call.id("index")
    what = f"part {index} of artifact {artifact_id!r}"
    if not _INDEX.fullmatch(index):
        raise NotFoundError(f"no {what} here")
    with _translated(what):
        if is_bound_to_agents(call.caller):  # others need no look at what the download looks up itself
            await _find_visible(services, call.caller, context, artifact_id)
        return await send_part(services, call.request, PartAddress(context, artifact_id, int(index)))


async def _find_visible(services: Services, caller: Caller, context: str, artifact_id: str) -> StoredArtifact:
    """Return an artifact that the caller may see.

    Raises:
        ArtifactMissingError: it does not exist, or belongs to others.
    """
    artifact = await services.stores.artifacts.get_artifact(context, artifact_id)
    if not await _visible_to(services, caller, [artifact]):
        raise ArtifactMissingError(artifact_id)
    return artifact


async def _visible_to(
    services: Services, caller: Caller, artifacts: Iterable[StoredArtifact]
) -> list[StoredArtifact]:
    """Return the artifacts of agents that the caller may use.

    The agent is that of the task's view; artifacts of a sub-agent belong to the task that called it.
    Without a view, callers whose scopes name agents see nothing.
    """
    if not is_bound_to_agents(caller):
        return list(artifacts)
    usable: dict[str, bool] = {}
    visible: list[StoredArtifact] = []
    for artifact in artifacts:
        task_id = artifact.task_id.partition(CHILD_SEPARATOR)[0]
        if task_id not in usable:
            snapshot = await services.views.load(task_id, most=0)
            usable[task_id] = snapshot is not None and may_use(caller, snapshot.view.agent_id)
        if usable[task_id]:
            visible.append(artifact)
    return visible


async def _send_result(services: Services, call: HttpCall) -> Response:
    task_id, call_id = call.id("task"), call.id("call")
    # The agent is the one that the view names.
    stored = await services.views.load(task_id, most=0)
    if stored is None or not may_use(call.caller, stored.view.agent_id):
        raise _missing(call_id)
    try:
        snapshot = await services.snapshots.open(task_id, Viewer(call.owner, stored.view.agent_id))
    except TaskUnknownError:
        raise _missing(call_id) from None
    result = await services.steps.result(snapshot.view, call_id)
    if result is None:
        raise _missing(call_id)
    if result.kept:
        context = context_key(snapshot.view.owner, snapshot.view.context_id)
        artifact_id = result_artifact(task_id, result.kept)
        with _translated(f"result of call {call_id!r}"):
            return await send_part(services, call.request, PartAddress(context, artifact_id, 0))
    name = quote(f"{result.name}-{call_id}.txt", safe="")
    headers = {**_SANDBOXED, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    content = result.content.encode(errors="replace")
    return Response(content, headers=headers, media_type="text/plain; charset=utf-8")


def _missing(call_id: str) -> NotFoundError:
    return NotFoundError(f"no result of call {call_id!r} here")


# Errors of downloads.

RETRY_AFTER = 2
"""Retry-After in seconds for a store that does not answer."""


@contextmanager
def _translated(what: str) -> Generator[None]:
    """Turn errors of the artifact store into HTTP errors; `what` names the content in their texts."""
    try:
        yield
    except (ArtifactMissingError, ArtifactIdError, PartIndexError):
        raise NotFoundError(f"no {what} here") from None
    except (ArtifactReplacedError, BlobsUnavailableError, *STORE_FAILURES) as failure:
        _log.warning(
            "download cannot be served now", what=what, error=type(failure).__name__, reason=str(failure)
        )
        text = "the artifact store cannot tell now; nothing is lost: ask again in a few seconds"
        raise UnavailableNowError(text, retry_after=RETRY_AFTER) from None
    except (BlobCorruptError, BlobMissingError) as failure:
        _log.error("content of an artifact is lost", what=what, error=str(failure))
        is_lost = isinstance(failure, BlobMissingError)
        lost, damaged = "the store no longer has it", "its checksum is another one than when it was stored"
        raise InternalError(f"{what} is {f'lost: {lost}' if is_lost else f'damaged: {damaged}'}") from None
