"""Stand-ins for the model: a script of replies, or a function that makes them.

Both are served by a real HTTP server in this process, so that the agent gets the bytes of a provider:
replies in pieces, random ids, failures as statuses, streams that are cut.
"""

import asyncio
import inspect
import json
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import cast

import uvicorn
from pydantic import BaseModel, JsonValue
from starlette.applications import Starlette

from everloop.activities.narrator.progress_summary import INSTRUCTIONS
from everloop.local.demo_model.chat_request import ChatRequest
from everloop.local.demo_model.completion import Call, Refusal, Reply
from everloop.local.demo_model.model_server import build_app
from everloop.models.catalogue import Catalogue, Provider
from everloop.runtime.user_code import error_text, translate_base_exceptions
from everloop.testing.errors import ScriptError

AnyReply = str | Call | Reply | Refusal | Sequence[Call] | Mapping[str, JsonValue] | BaseModel
"""A reply: a text, a call or several, data, a complete reply, or a failure."""

STAND_IN = "stand-in"
"""The provider of agents that name no model."""

_KEY = "scripted"
_LOOPBACK = "127.0.0.1"
_SHOWN = 200


def call(tool: str, /, **arguments: JsonValue) -> Call:
    """Return a tool call for a reply of the model."""
    return Call(tool, arguments)


def fail(
    status: int = 500, *, retry_after: int | None = None, message: str = "refused by the script"
) -> Refusal:
    """Return a failure of the model: an HTTP status, such as 429, 500 or 401. `retry_after`: seconds."""
    return Refusal(status, message, retry_after=retry_after)


def cut(text: str = "", *calls: Call) -> Reply:
    """Return a reply whose stream breaks off."""
    return Reply(text, calls, is_cut=True)


class StandIn(ABC):
    """Replaces all models of the agents under test."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        """Requests without a reply; the app raises the first."""

    @abstractmethod
    def opened(self, catalogue: Catalogue) -> AbstractAsyncContextManager[Catalogue]:
        """Serve while the block runs, and yield a catalogue whose providers all point here."""

    def raise_problem(self) -> None:
        """Raise the first problem, if any.

        Raises:
            ScriptError: a request had no reply.
        """
        if self.problems:
            raise ScriptError(self.problems[0])


class _Speaking(StandIn):
    """A stand-in that makes a reply for each request."""

    def __init__(self, *, check_tools: bool) -> None:
        super().__init__()
        self.requests: list[ChatRequest] = []
        self._checks_tools = check_tools

    @abstractmethod
    async def say(self, request: ChatRequest) -> Reply | Refusal:
        """Return the reply to a request."""

    def unheard(self, reply: Reply) -> None:
        """Take back a reply whose client left before its end: its worker was killed, or gave up."""

    @asynccontextmanager
    async def opened(self, catalogue: Catalogue) -> AsyncGenerator[Catalogue]:
        async with served(build_app(self._answer, unheard=self.unheard)) as url:
            providers = {name: _led_to(url, provider) for name, provider in catalogue.providers.items()}
            providers[STAND_IN] = Provider(STAND_IN, base_url=f"{url}/v1", key=_KEY)
            yield Catalogue(providers, catalogue.default_model or f"{STAND_IN}/script", {}, catalogue.date)

    async def _answer(self, request: ChatRequest) -> Reply | Refusal:
        self.requests.append(request)
        try:
            with translate_base_exceptions():
                reply = await self.say(request)
            if self._checks_tools and isinstance(reply, Reply):
                _check_calls(reply, request)
        except Exception as error:  # noqa: BLE001 -- a function of the test may raise anything
            is_ours = isinstance(error, ScriptError)
            self.problems.append(
                str(error) if is_ours else f"the model's function raised {error_text(error)}"
            )
            return Refusal(400, "the stand-in for the model has no reply; the test says why")
        return reply


class Script(_Speaking):
    """Replies in the order of the requests, from all tasks.

    Narrators, which run by the clock, get no reply and stay silent. Otherwise each request uses up a
    reply, also the one after a failure; a reply that its client did not receive completely is sent
    again. `check_tools` False allows calls of tools that are not offered, as models sometimes make
    them.

    >>> Script(call("forecast", city="Rome"), "Sunny, all day.").left
    2
    """

    def __init__(self, *replies: AnyReply, check_tools: bool = True) -> None:
        super().__init__(check_tools=check_tools)
        self._count = len(replies)
        self._left = deque(_reply(reply) for reply in replies)

    @property
    def left(self) -> int:
        """Number of unused replies."""
        return len(self._left)

    async def say(self, request: ChatRequest) -> Reply | Refusal:
        if request.messages[0].text == INSTRUCTIONS:
            return Reply("")
        if not self._left:
            raise ScriptError(
                f"the script has {self._count} replies, and the model was asked for one more. "
                f"{_described(request)} Add the reply to Script(…)"
            )
        return self._left.popleft()

    def unheard(self, reply: Reply) -> None:
        if not reply.is_cut:
            self._left.appendleft(reply)


class FunctionModel(_Speaking):
    """Replies by a function, sync or async, of the Chat Completions request."""

    def __init__(
        self, function: Callable[[ChatRequest], AnyReply | Awaitable[AnyReply]], *, check_tools: bool = True
    ) -> None:
        super().__init__(check_tools=check_tools)
        self._function = function

    async def say(self, request: ChatRequest) -> Reply | Refusal:
        said = self._function(request)
        return _reply(await said if inspect.isawaitable(said) else said)


def _led_to(url: str, provider: Provider) -> Provider:
    """Return a provider that points to our address, in Chat Completions, without rate limits."""
    return replace(
        provider,
        kind="chat",
        base_url=f"{url}/v1",
        key=_KEY,
        key_header="Authorization",
        headers={},
        query={},
        concurrency=None,
        requests_per_minute=None,
        tokens_per_minute=None,
    )


def _reply(said: object) -> Reply | Refusal:
    match said:
        case Reply() | Refusal():
            return said
        case str():
            return Reply(said)
        case Call():
            return Reply(calls=(said,))
        case BaseModel():
            return Reply(said.model_dump_json())
        case Mapping():
            return Reply(json.dumps(said))
        case list() | tuple() if calls := [
            each for each in cast("list[object]", said) if isinstance(each, Call)
        ]:
            return Reply(calls=tuple(calls))
        case _:
            raise ScriptError(
                f"a model cannot say {said!r:.{_SHOWN}}: give a text, call(…), a list of calls, a dict or a "
                "pydantic model as data, Reply(…), fail(…) or cut(…)"
            )


def _check_calls(reply: Reply, request: ChatRequest) -> None:
    for each in reply.calls:
        if each.name not in request.tool_names:
            near = get_close_matches(each.name, request.tool_names, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"on offer: {_listed(request)}."
            raise ScriptError(
                f"the model is to call {each.name!r}, which is not on offer to it; {meant} "
                "(check_tools=False lets it, as models sometimes do)"
            )


def _described(request: ChatRequest) -> str:
    """Describe a request, for the author of the missing reply."""
    results = [f"{tool} → {result!r:.{_SHOWN}}" for tool, result in request.returned]
    came = f", and tools have returned: {'; '.join(results)}" if results else ""
    return f"The user says {request.prompt!r:.{_SHOWN}}{came}. On offer: {_listed(request)}."


def _listed(request: ChatRequest) -> str:
    return ", ".join(sorted(request.tool_names)) or "no tools"


# Serving in this process.


class _ModelServer(uvicorn.Server):
    """A server that leaves signals to the test run."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def served(app: Starlette) -> AsyncGenerator[str]:
    """Serve an application on a free port while the block runs; yield its address."""
    with socket.create_server((_LOOPBACK, 0), backlog=512) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        server = _ModelServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://{_LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
