"""Who may call, and how often, is asked before anything of a call is read, on every binding over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl, Authenticator, RequestLimits
from everloop.gateway.context import Caller
from everloop.gateway.errors import TooManyRequestsError, UnauthenticatedError
from everloop.stores.views.interface import TaskViews
from tests.gateway.bindings.raw_calls import RAW_BINDINGS, RawBinding, changed
from tests.gateway.harness import PromptModel, RunningGateway, running_gateway, unique

every_binding = pytest.mark.parametrize("binding", RAW_BINDINGS, ids=str)


class Named(Authenticator):
    """Believes whoever says a name."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        self.peers.append(peer)
        if not headers.get("x-name"):
            raise UnauthenticatedError("say X-Name", challenge='Name realm="tests"')
        return Caller(owner=headers["x-name"], scheme="name")

    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        return {}


class NotGreedy(RequestLimits):
    """Refuses the owner "greedy", and fails for "unlucky"."""

    async def admit_request(self, owner: str) -> None:
        if owner == "greedy":
            raise TooManyRequestsError("that is too much; come back later", retry_after=7)
        if owner == "unlucky":
            raise RuntimeError("secret")


@pytest.fixture(scope="module")
def named() -> Named:
    return Named()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(
    client: Client, views: TaskViews, queue: str, model: PromptModel, named: Named
) -> AsyncGenerator[RunningGateway]:
    access = AccessControl(named, NotGreedy())
    async with running_gateway(client, views, queue=queue, access=access) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def http(guarded: RunningGateway) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guarded.url) as http:
        yield http


@every_binding
async def test_a_stranger_is_told_how_to_get_in(
    http: httpx.AsyncClient, binding: RawBinding, named: Named
) -> None:
    """401 with the challenge, in the shape of the binding; the authenticator knows where the call is from."""
    response = await http.request(**binding.get("x"))

    error = binding.error(response)
    assert (response.status_code, error["reason"]) == (401, "UNAUTHENTICATED")
    assert error["code"] == (401 if binding.is_rest else -32031)
    assert response.headers["WWW-Authenticate"] == 'Name realm="tests"'
    assert named.peers[-1] == "127.0.0.1"


@every_binding
async def test_who_asks_too_often_is_told_when_to_come_back(
    http: httpx.AsyncClient, binding: RawBinding
) -> None:
    """429 with Retry-After."""
    call = binding.send("hi", unique("m"), stream=True)
    call["headers"]["X-Name"] = "greedy"

    response = await http.request(**call)

    error = binding.error(response)
    assert (response.status_code, error["reason"]) == (429, "TOO_MANY_REQUESTS")
    assert error["code"] == (429 if binding.is_rest else -32033)
    assert response.headers["Retry-After"] == "7"


@every_binding
async def test_a_guard_that_fails_shows_nothing(http: httpx.AsyncClient, binding: RawBinding) -> None:
    """The client gets a reference, and no way around the guard."""
    call = binding.get("x")
    call["headers"]["X-Name"] = "unlucky"

    response = await http.request(**call)

    assert binding.error(response)["message"].startswith("internal error, reference ")
    assert "secret" not in response.text


@every_binding
async def test_tasks_belong_to_who_called(http: httpx.AsyncClient, binding: RawBinding) -> None:
    """Another owner's task is not found."""
    call = binding.send("hi", unique("m"))
    call["headers"]["X-Name"] = "ann"
    result = binding.result((await http.request(**call)).json())
    read = binding.get(result.get("task", result)["id"])

    ann = await http.request(**changed(read, headers=read["headers"] | {"X-Name": "ann"}))
    bob = await http.request(**changed(read, headers=read["headers"] | {"X-Name": "bob"}))

    assert "error" not in ann.json()
    assert binding.error(bob)["reason"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize("path", ["/", "/message:send", "/v1/message:stream", "/agents/staged"])
async def test_a_stranger_is_refused_before_the_body_is_read(guarded: RunningGateway, path: str) -> None:
    """The answer comes although the body never does."""
    address = urlsplit(guarded.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 1000000\r\n\r\n".encode()
    )

    assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()
