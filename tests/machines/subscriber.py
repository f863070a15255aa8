"""Clients that do not give up: they read streams through the proxy, and go on where they lost them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

IMPATIENCE = 6.0
"""Seconds of silence after which a client connects again, although a stream may be silent for 15."""

PAUSE = 0.3
"""Seconds until it does."""

SEND, STREAM, SUBSCRIBE = "SendMessage", "SendStreamingMessage", "SubscribeToTask"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
TERMINAL = frozenset(f"TASK_STATE_{state}" for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))

Json = dict[str, Any]


class UnavailableError(Exception):
    """The gateway, or the proxy, says that it cannot answer now."""


class EndedError(Exception):
    """The task has ended, and who has heard nothing of it yet is not told it as a stream (A2A 1.0 §3.1.6)."""


@dataclass(frozen=True)
class Event:
    """A server-sent event: its id, and the stream response in it."""

    id: str
    response: Json

    @property
    def state(self) -> str:
        """The state that it tells, "" if none."""
        told: Json = self.response.get("task") or self.response.get("statusUpdate") or {}
        return str(told["status"]["state"]) if told else ""


def new_message(text: str, task_id: str = "") -> Json:
    """Return a message that is to be sent until it has arrived."""
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "taskId": task_id, "parts": [{"text": text}]}


async def call(http: httpx.AsyncClient, method: str, params: Json) -> Json:
    """Call until there is an answer; return its result."""
    while True:
        try:
            response = await http.post("/", json=_body(method, params))
            return _require_result(response.status_code, _read(response))
        except (httpx.TransportError, UnavailableError):
            await asyncio.sleep(PAUSE)


@dataclass
class Subscriber:
    """What one client has heard of a task, over any number of connections.

    It begins with its message, or, with only the id of a task, as somebody who looks on. `connections`
    counts all that brought something.
    """

    http: httpx.AsyncClient
    message: Json | None = None
    task_id: str = ""
    events: list[Event] = field(default_factory=list[Event])
    known: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    failures: list[str] = field(default_factory=list[str])

    @property
    def is_over(self) -> bool:
        return bool(self.events) and self.events[-1].state in TERMINAL

    @property
    def heard_all_at_once(self) -> bool:
        """Whether the task was over when the client first reached a gateway: a stream of one snapshot."""
        return self.is_over and len(self.events) == 1

    async def follow(self) -> None:
        """Listen until the task is over, or was before anything could be heard."""
        while not self.is_over:
            try:
                await self._listen()
            except EndedError:
                assert not self.events, "what follows an event was refused"
                return
            except (httpx.TransportError, UnavailableError) as error:
                self.failures.append(f"{type(error).__name__} {error}")
            if not self.is_over:
                await asyncio.sleep(PAUSE)

    async def _listen(self) -> None:
        last_id = self.events[-1].id if self.events else ""
        if self.message and not last_id:
            method, params = STREAM, {"message": self.message}
        else:
            method, params = SUBSCRIBE, {"id": self.task_id}
        is_first = True
        async with aclosing(read_events(self.http, method, params, last_id)) as events:
            async for event in events:
                self.connections += is_first
                is_first = False
                self._hear(event, last_id)

    def _hear(self, event: Event, last_id: str) -> None:
        if task := event.response.get("task"):
            assert not last_id, "a snapshot instead of what follows: the stream was lost"
            assert not self.events, "a second snapshot in one connection"
            self.task_id = task["id"]
            self.known.set()
        self.events.append(event)
        if event.state == INPUT_REQUIRED:
            self.asked.set()


async def read_events(
    http: httpx.AsyncClient, method: str, params: Json, last_id: str = ""
) -> AsyncGenerator[Event]:
    """Yield the events of one connection, behind `last_id` if there is one.

    Raises:
        UnavailableError, httpx.TransportError: there is none, or it was lost.
        EndedError: there is nothing to stream any more.
    """
    headers = {"Last-Event-ID": last_id} if last_id else {}
    timeout = httpx.Timeout(IMPATIENCE)
    async with http.stream(
        "POST", "/", json=_body(method, params), headers=headers, timeout=timeout
    ) as response:
        if not response.headers["Content-Type"].startswith("text/event-stream"):
            await response.aread()
            _require_result(response.status_code, _read(response))
        event_id = ""
        async for line in response.aiter_lines():
            name, _, value = line.partition(":")
            if name == "id":
                event_id = value.strip()
            elif name == "data":
                yield Event(event_id, _require_result(response.status_code, json.loads(value)))


def _body(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _require_result(status: int, answer: Json) -> Json:
    """Return the result of a call.

    Raises:
        UnavailableError: the proxy or the gateway cannot answer now; a stream has said 200 before that.
        EndedError: there is nothing to stream any more.
    """
    if "result" in answer:
        return answer["result"]
    message = str(answer["error"]["message"])
    if status >= httpx.codes.INTERNAL_SERVER_ERROR or "send the same request again" in message:
        raise UnavailableError(f"{status} {message}")
    if "publishes nothing more" in message:
        raise EndedError(message)
    raise AssertionError(f"{status} {answer}")


def _read(response: httpx.Response) -> Json:
    """Return what was answered; the proxy's own errors are no JSON."""
    if response.headers["Content-Type"].startswith("application/json"):
        return response.json()
    return {"error": {"message": response.text}}
