"""Rules for every address of the HTTP extension: callers, owners and requests."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from pydantic_core import ValidationError
from redis.exceptions import ConnectionError as RedisConnectionError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from structlog.testing import capture_logs

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.errors import TaskUnknownError
from everloop.gateway.http.http_calls import HttpCall, RequestBody, answer, call_route
from everloop.gateway.http.http_errors import ConflictError, unserved
from everloop.gateway.http.requests import BodyLimits, HttpContext
from everloop.workflows.contract.http_extension import HTTP_BASE
from tests.gateway.harness import key_scheme

KEYS = {
    "reader": ("alice", ["tasks:read"]),
    "writer": ("alice", ["tasks:write"]),
    "both": ("alice", ["tasks:read", "tasks:write"]),
    "admin": ("root", ["admin"]),
}

FAILURES: dict[str, Exception] = {
    "conflict": ConflictError("somebody was faster"),
    "task": TaskUnknownError("t"),
    "store": RedisConnectionError("secret"),
    "bug": ZeroDivisionError("secret"),
    "data": ValidationError.from_exception_data(
        "secret", [{"type": "missing", "loc": ("secret",), "input": 1}]
    ),
}


class _Change(RequestBody):
    expected: ClassVar[str] = '{"newTitle": "…"}'
    new_title: str


async def _show(call: HttpCall) -> Response:
    page = call.page
    return answer({"owner": call.owner, "id": call.id(), "size": page.size, "token": page.token})


async def _change(call: HttpCall) -> Response:
    return answer({"title": (await call.body(_Change)).new_title}, 201)


async def _remove(call: HttpCall) -> Response:
    return answer({"owner": call.owner})


async def _fail(call: HttpCall) -> Response:
    raise FAILURES[call.id()]


@dataclass(frozen=True)
class Site:
    """Some addresses of the extension."""

    http: httpx.AsyncClient
    keys: Mapping[str, Mapping[str, str]]

    async def call(self, method: str, path: str, caller: str = "both", body: object = None) -> httpx.Response:
        """Call an address; an empty `caller` sends no key."""
        headers = dict(self.keys.get(caller, {}))
        return await self.http.request(method, HTTP_BASE + path, headers=headers, json=body)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    scheme, keys = key_scheme(tmp_path_factory.mktemp("keys") / "keys", KEYS)
    context = HttpContext(AccessControl(scheme), BodyLimits(1000))
    routes = [
        call_route(context, f"{HTTP_BASE}/things/{{id}}", GET=_show, PATCH=_change, DELETE=_remove),
        call_route(context, f"{HTTP_BASE}/failures/{{id}}", GET=_fail),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: unserved})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http:
        yield Site(http, keys)


@pytest.mark.parametrize("name", ["a", "a/b", "ü ?#", "%2F", "a:b", ".."])
async def test_an_id_is_one_segment(site: Site, name: str) -> None:
    """An id is one segment of any characters; an address with more segments is another one."""
    got = await site.call("GET", f"/things/{quote(name, safe='').replace('.', '%2E')}")
    assert (got.status_code, got.json().get("id")) == (200, name)
    assert (await site.call("GET", f"/things/{quote(name, safe='')}/more")).status_code == 404


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("", 200, '"size":50,"token":""'),
        ("?pageSize=100&pageToken=x", 200, '"size":100,"token":"x"'),
        *(
            (f"?pageSize={text}", 400, "pageSize is no number from 1 to 100")
            for text in ("0", "101", "x", "²")
        ),
    ],
)
async def test_pages_are_bounded(site: Site, query: str, status: int, says: str) -> None:
    """An invalid page size is an error, and is not replaced by another size."""
    got = await site.call("GET", f"/things/x{query}")
    assert (got.status_code, says in got.text) == (status, True), got.text


@pytest.mark.parametrize(
    ("method", "caller", "owner", "status", "says"),
    [
        ("GET", "", "", 401, "UNAUTHENTICATED"),
        ("GET", "reader", "", 200, '"owner":"alice"'),
        ("GET", "reader", "alice", 200, '"owner":"alice"'),
        ("GET", "writer", "", 403, "tasks:read"),
        ("GET", "both", "bob", 403, "admin"),
        ("GET", "admin", "bob", 200, '"owner":"bob"'),
        ("GET", "admin", "", 403, "tasks:read"),
        ("GET", "admin", "%20", 400, "nobody's name"),
        ("DELETE", "reader", "", 403, "tasks:write"),
        ("DELETE", "writer", "", 200, '"owner":"alice"'),
        ("DELETE", "admin", "bob", 200, '"owner":"bob"'),
        ("PATCH", "admin", "bob", 400, "owner goes with GET and DELETE"),
        ("PATCH", "reader", "", 403, "tasks:write"),
    ],
)
async def test_who_may_do_what_for_whom(  # noqa: PLR0913, PLR0917 -- the columns of a table
    site: Site, method: str, caller: str, owner: str, status: int, says: str
) -> None:
    """Scopes are checked before anything is read; an action for another owner is logged with its caller."""
    with capture_logs() as logs:
        got = await site.call(method, f"/things/x?owner={owner}" if owner else "/things/x", caller)
    assert (got.status_code, says in got.text) == (status, True), got.text
    assert got.headers["Cache-Control"] == "no-store"
    told = [line for line in logs if line["event"] == "called for another owner"]
    assert [(line["for_owner"], line["admin"].split()[0]) for line in told] == (
        [("bob", "root")] if (status, owner) == (200, "bob") else []
    )


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"newTitle": "x"}, 201, '"title":"x"'),
        ({"newTitle": 1}, 400, "newTitle does not fit"),
        ({"new_title": "x"}, 400, 'send {\\"newTitle\\": \\"…\\"}'),
        ({"newTitle": "x", "more": 1}, 400, "more does not fit"),
        ([], 400, "the body does not fit"),
        ({"newTitle": "x" * 1000}, 413, "CONTENT_TOO_LARGE"),
    ],
)
async def test_bodies_are_strict(site: Site, body: object, status: int, says: str) -> None:
    """The error names the unknown or invalid field and the expected form."""
    got = await site.call("PATCH", "/things/x", body=body)
    assert (got.status_code, says in got.text) == (status, True), got.text


@pytest.mark.parametrize(
    ("name", "status", "reason", "retry"),
    [
        ("conflict", 409, "CONFLICT", None),
        ("task", 404, "TASK_NOT_FOUND", None),
        ("store", 503, "UNAVAILABLE", "2"),
        ("bug", 500, "INTERNAL_ERROR", None),
        ("data", 500, "INTERNAL_ERROR", None),  # unreadable stored data: not the client's fault
    ],
)
async def test_failures_are_told_as_a2a_tells_them(
    site: Site, name: str, status: int, reason: str, retry: str | None
) -> None:
    """Errors have a status and a reason, a retry time, and no internals."""
    got = await site.call("GET", f"/failures/{name}")
    error = got.json()["error"]
    assert (got.status_code, error["code"], error["details"][0]["reason"]) == (status, status, reason)
    assert got.headers.get("Retry-After") == retry
    assert "secret" not in got.text


async def test_methods_that_there_are_not(site: Site) -> None:
    """405 lists all methods."""
    got = await site.call("POST", "/things/x")
    assert (got.status_code, got.headers["Allow"]) == (405, "DELETE, GET, HEAD, PATCH")
