"""Results of tool calls, whole: events and steps have only their beginnings. They take the scope tasks:read.

    GET /results/{task}/{call}

HEAD works too. Ids are percent-encoded path segments. The id of a call is the one that events tell.
"""

from http import HTTPStatus
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.context import Viewer
from everloop.gateway.downloads.errors import DownloadError, error_response
from everloop.gateway.downloads.guard import DownloadAccess
from everloop.gateway.errors import TaskUnknownError
from everloop.gateway.tasks.snapshots import Snapshots
from everloop.gateway.tasks.steps import Steps
from everloop.runtime.protocol.addresses import RESULTS
from everloop.stores.views.interface import TaskViews

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox",
}


class ResultDownloads:
    """Serves what the tool calls of a client's own tasks came to, as text."""

    def __init__(self, access: AccessControl, views: TaskViews, snapshots: Snapshots, steps: Steps) -> None:
        self._access = DownloadAccess(access, views)
        self._views = views
        self._snapshots = snapshots
        self._steps = steps

    @property
    def routes(self) -> list[Route]:
        return [Route(f"/{RESULTS}/{{task_id}}/{{call_id}}", self._serve, methods=["GET"])]

    async def _serve(self, request: Request) -> Response:
        task_id, call_id = request.path_params["task_id"], request.path_params["call_id"]
        try:
            return await self._answer(request, task_id, call_id)
        except TaskUnknownError:
            return error_response(_missing(call_id), "")
        except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
            return error_response(failure, f"result of call {call_id!r}")

    async def _answer(self, request: Request, task_id: str, call_id: str) -> Response:
        caller = await self._access.admit(request)
        # Of the agent we know what the view says, and whether that is one of the caller's.
        known = await self._views.load(task_id, most=0)
        if known is None or not await self._access.is_seen_by(caller, task_id):
            raise _missing(call_id)
        snapshot = await self._snapshots.open(task_id, Viewer(caller.owner, known.view.agent_id))
        result = await self._steps.result(snapshot.view, call_id)
        if result is None:
            raise _missing(call_id)
        name = quote(f"{result.name}-{call_id}.txt", safe="")
        headers = {**_HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        content = result.content.encode(errors="replace")
        return Response(content, headers=headers, media_type="text/plain; charset=utf-8")


def _missing(call_id: str) -> DownloadError:
    return DownloadError(HTTPStatus.NOT_FOUND, f"no result of call {call_id!r} here")
