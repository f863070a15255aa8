"""Each command about a task, or its answer, is lost between Everloop and Redis, one in each task."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest

from everloop.client import BusyError, Client, Result, TaskState
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.relay import Connection, Relay, running_relay
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI, tool_call

AGENTS = "tests.acceptance.durability.losing_agent:agent"

ABOUT_TASKS = (b"{losing-", b":context-of-")
"""Substrings of a command about a task, or about its context."""

AFTER = 3
"""Commands beyond those of the task without a loss: the order of some differs."""


@dataclass
class Losing(Relay):
    """Breaks the connection at command number `place` about tasks, before it or before its answer."""

    place: int = 0
    loses_answer: bool = False
    seen: int = 0
    lost: bytes = b""
    _broken: set[Connection] = field(default_factory=set[Connection])

    def begin(self, place: int, *, loses_answer: bool) -> None:
        """Lose this one of the next commands; none for 0."""
        self.place, self.loses_answer, self.seen, self.lost = place, loses_answer, 0, b""

    async def asked(self, connection: Connection, piece: bytes) -> bytes:
        if any(word in piece for word in ABOUT_TASKS):
            self.seen += 1
            if self.seen == self.place:
                self.lost = piece
                if not self.loses_answer:
                    raise ConnectionResetError
                self._broken.add(connection)
        return piece

    async def answered(self, connection: Connection, piece: bytes) -> bytes:
        if connection in self._broken:
            raise ConnectionResetError
        return piece


@dataclass
class _Model:
    """Calls two tools at once, then one that asks, then answers in two pieces."""

    ledger: Path = Path()
    received: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])

    def __call__(self, received: ReceivedRequest) -> Reply:
        self.received.append(received)
        arguments = json.dumps({"ledger": str(self.ledger)})
        match len(received.tool_results):
            case 0:
                return Reply([tool_call("pay", arguments), tool_call("look", arguments, index=1)])
            case 2:
                return Reply([tool_call("book", arguments)])
            case _:
                return Reply(["The ", "end."])


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("loses", ["command", "answer"])
@pytest.mark.parametrize("whose", ["worker", "gateway"])
async def test_what_redis_never_got_or_answered_costs_nothing_but_time(
    tmp_path: Path, whose: Literal["worker", "gateway"], loses: Literal["command", "answer"]
) -> None:
    """Each tool runs once, the number of model calls is the same, and the client reads one whole answer."""
    model = _Model()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ScriptedOpenAI())
        server.script = model
        deployment = await stack.enter_async_context(
            running_deployment(tmp_path, server.base_url, agents=AGENTS)
        )
        port = int(deployment.redis_url.rpartition(":")[2].split("/")[0])
        relay = await stack.enter_async_context(running_relay(Losing(port)))
        relayed = {"EVERLOOP_REDIS_URL": f"redis://{relay.address}/0"}
        gateway = await deployment.add_gateway(**relayed if whose == "gateway" else {})
        await deployment.add_worker(**relayed if whose == "worker" else {})
        client = await stack.enter_async_context(Client(gateway.url))

        async def run(place: int) -> Sequence[str]:
            model.ledger, model.received = tmp_path / f"ledger-{place}", []
            relay.begin(place, loses_answer=loses == "answer")
            first, second = str(uuid4()), str(uuid4())
            asked = await _retry(
                lambda: client.send("Go.", context_id=f"context-of-{first}", message_id=first)
            )
            for question in asked.questions:
                answer = partial(client.answer, asked.id, "B1", question_id=question.id, message_id=second)
                return _wrong(await _retry(answer), model)
            return ["no question", *_wrong(asked, model)]

        assert await run(0) == []
        await asyncio.sleep(2)  # commands after the end of a task are about it, too
        commands = relay.seen
        assert commands > 20
        wrong = {
            place: (found, relay.lost[:500])
            for place in range(1, commands + AFTER)
            if (found := await run(place))
        }
        assert wrong == {}


async def _retry(call: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat the call while the gateway answers with a retry time."""
    while True:
        try:
            return await call()
        except BusyError as error:
            await asyncio.sleep(error.retry_after)


def _wrong(result: Result, model: _Model) -> Sequence[str]:
    """Return the errors in a task that has ended."""
    results = model.received[-1].tool_results if model.received else []
    ledger = model.ledger.read_text().splitlines() if model.ledger.exists() else []
    artifacts = {artifact.id: artifact.text for artifact in result.artifacts}
    found = {
        "state": (result.state, TaskState.COMPLETED),
        "answer": (result.text, "The end."),
        "effects": (sorted(ledger), ["booked B1", "paid"]),
        "told": (list(results), ["paid", "seen", "booked"]),
        "requests": (len(model.received), 3),
        "receipt": (artifacts.get("receipt"), "paid"),
    }
    return [f"{what} {is_!r}" for what, (is_, should) in found.items() if is_ != should]
