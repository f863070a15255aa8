"""Whose artifacts a request is about."""

from uuid import uuid4

import httpx
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import StarletteUser
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

from gateway.downloads import Downloads
from gateway.owners import ANONYMOUS, owner_of
from gateway.stores import Stores
from stores.artifacts import Create, NewPart
from stores.memory_artifacts import MemoryArtifacts
from stores.memory_secrets import MemorySecrets
from stores.memory_task_views import MemoryTaskViews
from workflows.contract.names import context_key


class ByHeader(AuthenticationBackend):
    """Takes clients for whom they say they are."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        name = conn.headers.get("X-User")
        return (AuthCredentials(), SimpleUser(name)) if name else None


async def test_an_artifact_is_its_owner_s() -> None:
    """Who owns a task by A2A downloads its artifacts; another user, or nobody, is told that there is none."""
    artifacts = MemoryArtifacts()
    owner = owner_of(ServerCallContext(user=StarletteUser(SimpleUser("ann"))))
    context = str(uuid4())
    create = Create("task", (NewPart("file", b"hers"),), complete=True)
    await artifacts.apply(context_key(owner, context), "a", create)
    downloads = Downloads(Stores(MemoryTaskViews(), MemorySecrets(), artifacts), "http://here/")
    app = Starlette(
        routes=[*downloads.routes], middleware=[Middleware(AuthenticationMiddleware, backend=ByHeader())]
    )

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http:
        path = f"/artifacts/{context}/a/parts/0"
        own = await http.get(path, headers={"X-User": "ann"})
        others = [await http.get(path, headers=headers) for headers in ({"X-User": "bob"}, {})]

    assert owner == "ann" != ANONYMOUS
    assert (own.status_code, own.content) == (200, b"hers")
    assert [answer.status_code for answer in others] == [404, 404]
