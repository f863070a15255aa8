"""Legal but rare behaviour of servers: events cut between two ids, errors in the middle, refusals."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
import uvicorn
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from everloop.client import (
    ArtifactChanged,
    BusyError,
    Client,
    ClientError,
    Done,
    ExtensionMissingError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Question,
    Reconnecting,
    ServerError,
    TaskState,
    TextDelta,
    UnreachableError,
    UnsupportedError,
)
from everloop.local.servers import LOOPBACK
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION, HTTP_EXTENSION
from tests.support.servers.scripted_openai import QuietServer

Json = dict[str, JsonValue]


class _CutError(Exception):
    """Makes the server drop the connection in the middle of a body."""


@dataclass
class Everloop:
    """Answers each call with the next entry of its script: a response, or pieces of a stream.

    At "cut" it drops the connection. A read of the task that is not in the script gets one without calls.
    """

    url: str = ""
    tenant: str = ""
    extensions: list[JsonValue] = field(
        default_factory=lambda: [
            {"uri": EVENTS_EXTENSION},
            {"uri": HTTP_EXTENSION, "params": {"base": "/beside/v1"}},
        ]
    )
    script: list[Response | Sequence[str]] = field(default_factory=list[Response | Sequence[str]])
    calls: list[Json] = field(default_factory=list[Json])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    async def card(self, _: Request) -> Response:
        return JSONResponse(
            {
                "name": "Scripted",
                "supportedInterfaces": [
                    {
                        "url": f"{self.url}/",
                        "protocolBinding": "JSONRPC",
                        "protocolVersion": "1.0",
                        "tenant": self.tenant,
                    }
                ],
                "capabilities": {"streaming": True, "extensions": self.extensions},
            }
        )

    async def beside(self, request: Request) -> Response:
        answer = self.script.pop(0)
        assert isinstance(answer, Response)
        return answer

    async def call(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        if asked["method"] == "GetTask" and not (self.script and isinstance(self.script[0], Response)):
            known = task("WORKING", metadata={EVENTS_EXTENSION: {"steps": []}})["task"]
            return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": known})
        self.calls.append(asked)
        self.headers.append(dict(request.headers))
        answer = self.script.pop(0)
        if isinstance(answer, Response):
            return answer
        return StreamingResponse(_pieces(answer), media_type="text/event-stream")


async def _pieces(pieces: Sequence[str]) -> AsyncGenerator[str]:
    for piece in pieces:
        if piece == "cut":
            raise _CutError
        yield piece
        await asyncio.sleep(0)  # each is a chunk of its own


def event(result: JsonValue, event_id: str = "") -> str:
    name = f"id: {event_id}\n" if event_id else ""
    return f"{name}data: {json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': result})}\n\n"


def task(state: str, **fields: JsonValue) -> Json:
    return {"task": {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}, **fields}}


def status(state: str) -> Json:
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}}


def chunk(artifact: str, text: str, *, append: bool = True, last: bool = False) -> Json:
    made: Json = {"artifactId": artifact, "parts": [{"text": text}]}
    return {
        "artifactUpdate": {
            "taskId": "t", "contextId": "c", "artifact": made, "append": append, "lastChunk": last
        }
    }  # fmt: skip


def error(reason: str, code: int = -32603) -> str:
    about: Json = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}
    told = {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "not now", "data": [about]}}
    return f"event: error\ndata: {json.dumps(told)}\n\n"


@asynccontextmanager
async def running() -> AsyncGenerator[Everloop]:
    everloop = Everloop()
    app = Starlette(
        routes=[
            Route("/.well-known/agent-card.json", everloop.card),
            Route("/", everloop.call, methods=["POST"]),
            Route("/beside/v1/tasks/a/b/usage", everloop.beside),
        ]
    )
    with socket.create_server((LOOPBACK, 0)) as listening:
        everloop.url = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        server = QuietServer(uvicorn.Config(app, log_config=None, lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield everloop
        finally:
            server.should_exit = True
            await serving


COMPLETED = event(status("COMPLETED"), "9")

LOSSES = {
    "between two updates of one event": (
        [event(task("WORKING"), "1"), event(chunk("response", "ab")), "cut"],
        [event(chunk("response", "ab")), event(chunk("response", "cd"), "2"), COMPLETED],
        "1",
    ),
    "in the middle of a line": (
        [event(task("WORKING"), "1"), event(chunk("response", "abcd"), "2")[:40], "cut"],
        [event(chunk("response", "abcd"), "2"), COMPLETED],
        "1",
    ),
    "a server that stops, and says so": (
        [event(task("WORKING"), "1"), event(chunk("response", "ab"), "2"), ": stops\nretry: 1000\n\n"],
        [event(chunk("response", "cd"), "3"), COMPLETED],
        "2",
    ),
    "a body that ends too early": (
        [event(task("WORKING"), "1"), event(chunk("response", "ab"), "2")],
        [event(chunk("response", "cd"), "3"), COMPLETED],
        "2",
    ),
    "an error of a server behind it": (
        [event(task("WORKING"), "1"), event(chunk("response", "ab"), "2"), error("UNAVAILABLE")],
        [event(chunk("response", "cd"), "3"), COMPLETED],
        "2",
    ),
    "ids that nobody knows any more": (
        [event(task("WORKING"), "1"), event(chunk("response", "ab"), "2"), "cut"],
        [
            event(task("WORKING", artifacts=[{"artifactId": "response", "parts": [{"text": "abc"}]}]), "7"),
            event(chunk("response", "d"), "8"),
            COMPLETED,
        ],
        "2",
    ),
    "an answer that is told anew, in whole": (
        [event(task("WORKING"), "1"), event(chunk("response", "ab"), "2"), "cut"],
        [event(chunk("response", "abcd", append=False, last=True), "3"), COMPLETED],
        "2",
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_the_answer_is_told_once(loss: str) -> None:
    """After any end of a connection the text so far, and no more, precedes the rest."""
    first, second, after = LOSSES[loss]
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script = [first, second]
        if "ids" in loss:
            everloop.script.append(
                JSONResponse({"jsonrpc": "2.0", "id": 1, "result": task("COMPLETED")["task"]})
            )
        events = [each async for each in client.stream("x")]

    told = [each for each in events if isinstance(each, TextDelta)]
    assert "".join(each.text for each in told) == "abcd"
    assert not any(each.starts_over for each in told)
    assert [each["method"] for each in everloop.calls][:2] == ["SendStreamingMessage", "SubscribeToTask"]
    assert everloop.headers[1]["last-event-id"] == after
    assert isinstance(events[-1], Done)
    assert events[-1].result.state is TaskState.COMPLETED
    assert len([each for each in events if isinstance(each, Reconnecting)]) == 1


@pytest.mark.parametrize("ending", ["retry: 1000\n\n", "cut"])
async def test_an_answered_question_is_not_asked_again(ending: str) -> None:
    """The task shows it a moment longer: a client that loses the connection then does not report it again."""
    asked: Json = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Which?"}]}
    shown: Json = {"state": "TASK_STATE_INPUT_REQUIRED", "message": asked}
    old: Json = {"task": {"id": "t", "contextId": "c", "status": shown}}
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script += [[event(old, "1"), ending], [event(status("WORKING"), "2"), COMPLETED]]
        everloop.script.append(JSONResponse({"jsonrpc": "2.0", "id": 1, "result": task("COMPLETED")["task"]}))
        result = await client.answer("t", "that one")

    assert result.state is TaskState.COMPLETED
    assert not [each for each in result.events if isinstance(each, Question)]


def asking(*ids: str) -> Json:
    described: list[JsonValue] = [{"id": each, "kind": "clarification", "text": "Which?"} for each in ids]
    message: Json = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"data": {"questions": described}}]}
    waiting: Json = {"state": "TASK_STATE_INPUT_REQUIRED", "message": message}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": waiting}}


async def test_a_question_that_stays_open_is_told_once() -> None:
    """Each status names all open questions: another one comes, and one is answered."""
    async with running() as everloop, Client(everloop.url) as client:
        updates = [task("WORKING"), asking("a"), asking("a", "b"), asking("b")]
        everloop.script = [[*map(event, updates), COMPLETED]]
        events = [each async for each in client.watch("t")]

    assert [each.id for each in events if isinstance(each, Question)] == ["a", "b"]


async def test_an_answer_may_start_over() -> None:
    """The model was called again: the earlier text is void. Line ends of Unicode do not end an event."""
    pieces = [
        event(task("WORKING"), "1"),
        event(chunk("response", "Hm\u2028"), "2").replace("\\u2028", "\u2028"),
        event(chunk("response", "", append=False), "3"),
        event(chunk("response", "Well."), "4"),
        event(chunk("table", "a,b"), "5"),
        event(chunk("table", "\n1,2", last=True), "6"),
        COMPLETED,
    ]
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script = [pieces]
        events = [each async for each in client.stream("x")]

    told = [(each.text, each.starts_over) for each in events if isinstance(each, TextDelta)]
    assert told == [("Hm\u2028", False), ("", True), ("Well.", False)]
    assert isinstance(events[-1], Done)
    result = events[-1].result
    assert result.text == "Well."
    assert [one.text for one in result.artifacts] == ["a,b\n1,2"]
    assert [each.artifact.is_complete for each in events if isinstance(each, ArtifactChanged)] == [
        False,
        True,
    ]
    assert [each.artifact.text for each in result.events if isinstance(each, ArtifactChanged)] == ["a,b\n1,2"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
async def test_lines_end_as_they_may(end: str) -> None:
    """Wherever they are cut."""
    pieces = [event(task("WORKING"), "1"), event(chunk("response", "ab"), "2"), COMPLETED]
    whole = "".join(pieces).replace("\n", end)
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script = [[*whole]]
        result = await client.send("x")

    assert result.text == "ab"
    assert [each.event_id for each in result.events] == ["1", "2", "9"]


def _refusal(status_code: int, reason: str = "", **headers: str) -> Response:
    details: JsonValue = [{"@type": "x", "reason": reason}] if reason else []
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "so it is", "data": details}}
    return JSONResponse(body, status_code, headers)


REFUSALS: dict[str, tuple[Response | list[str], type[ClientError], str]] = {
    "overload": (_refusal(429, "TOO_MANY_REQUESTS", **{"Retry-After": "7"}), BusyError, "so it is"),
    "an outage": (_refusal(503, "UNAVAILABLE", **{"Retry-After": "7"}), BusyError, "so it is"),
    "a scope": (_refusal(403, "PERMISSION_DENIED"), ForbiddenError, "so it is"),
    "too large": (_refusal(413, "CONTENT_TOO_LARGE"), InvalidError, "so it is"),
    "our fault": (_refusal(500, "INTERNAL_ERROR"), ServerError, "so it is"),
    "a page": (Response("<html>", media_type="text/html"), ServerError, "no A2A"),
    "an error as a stream": ([error("UNSUPPORTED_OPERATION", -32004)], UnsupportedError, "not now"),
    "nonsense": (["data: {}\n\n"], ServerError, "no A2A"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_says_what_it_is(case: str) -> None:
    """At once: only a request that may have been taken in is sent again."""
    answer, kind, words = REFUSALS[case]
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script = [answer]
        with pytest.raises(kind, match=words) as caught:
            await client.send("x")

    assert len(everloop.calls) == 1
    if isinstance(caught.value, BusyError):
        assert caught.value.retry_after == 7


async def test_a_refusal_that_would_come_again_is_not_waited_out() -> None:
    """The connection is lost, and the next one is refused: the key has expired meanwhile."""
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script = [[event(task("SUBMITTED"), "1"), "cut"], _refusal(403), [COMPLETED]]
        with pytest.raises(ForbiddenError):
            await client.send("x")

    assert [each["method"] for each in everloop.calls] == ["SendStreamingMessage", "SubscribeToTask"]


async def test_a_task_whose_streams_all_end_is_read() -> None:
    """A server other than Everloop gives no sign that the next subscription would last longer."""
    async with running() as everloop, Client(everloop.url) as client:
        everloop.extensions = []
        everloop.script = [[event(task("WORKING"))], [event(task("WORKING"))]]
        for state in ("WORKING", "COMPLETED"):
            answer: Json = {"jsonrpc": "2.0", "id": 1, "result": task(state)["task"]}
            everloop.script.append(JSONResponse(answer))
        result = await client.send("x")

    assert result.state is TaskState.COMPLETED
    methods = [call["method"] for call in everloop.calls]
    assert methods == ["SendStreamingMessage", "SubscribeToTask", "GetTask", "GetTask"]


ANSWERS_BESIDE: dict[str, tuple[Response, type[ClientError], str]] = {
    "an older gateway": (_refusal(404, "ADDRESS_UNKNOWN"), ExtensionMissingError, "older than the client"),
    "nothing of this id": (_refusal(404, "TASK_NOT_FOUND"), NotFoundError, "so it is"),
    "somebody was first": (_refusal(409, "CONFLICT"), InvalidError, "so it is"),
    "a wrong type": (JSONResponse({"total": {"inputTokens": "x"}}), ServerError, "total.inputTokens"),
    "a list": (JSONResponse([]), ServerError, "not what was expected"),
    "a page": (Response("<html>", media_type="text/html"), ServerError, "is no JSON"),
}


@pytest.mark.parametrize("case", ANSWERS_BESIDE)
async def test_what_is_answered_beside_a2a_is_an_error_of_the_client_too(case: str) -> None:
    """At the address in the card."""
    answer, kind, words = ANSWERS_BESIDE[case]
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script = [answer, JSONResponse({"total": {"inputTokens": 3, "later": 1}, "more": {}})]
        with pytest.raises(kind, match=words):
            await client.usage("a/b")
        assert (await client.usage("a/b")).total.input_tokens == 3


async def test_a_server_that_stays_away_is_not_waited_for_without_end() -> None:
    """Only for the given time."""
    async with running() as everloop, Client(everloop.url, reconnect=0.5) as client:
        everloop.script = [[event(task("WORKING"), "1"), "cut"], *[_refusal(502)] * 20]
        with pytest.raises(UnreachableError, match="cannot be reached"):
            await client.send("x")

    assert 1 < len(everloop.calls) < 20


async def test_each_call_names_the_tenant_of_the_card() -> None:
    """A2A 1.0 §4.4.6: clients send back the tenant of an agent's interface."""
    async with running() as everloop, Client(everloop.url) as client:
        everloop.tenant = "ours"
        everloop.script = [[event(task("COMPLETED"))], [event(task("COMPLETED"))]]
        await client.send("Hello")
        _ = [each async for each in client.watch("t")]
        results: list[JsonValue] = [task("CANCELED")["task"], {"tasks": []}]
        everloop.script = [JSONResponse({"jsonrpc": "2.0", "id": 1, "result": each}) for each in results]
        await client.cancel("t")
        _ = [each async for each in client.tasks()]
    told = [(call["method"], cast("Json", call["params"]).get("tenant")) for call in everloop.calls]
    methods = ("SendStreamingMessage", "SubscribeToTask", "CancelTask", "ListTasks")
    assert told == [(method, "ours") for method in methods]
