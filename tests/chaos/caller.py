"""A patient client: it retries a call that a gateway cannot serve now, at another one."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import cast

import httpx

from tests.chaos.story import Json, Story

PAUSE = 0.3
"""Seconds from a failure to the next try."""

HEADERS = {"A2A-Version": "1.0"}


class RefusedError(Exception):
    """The gateway refused for a reason that waiting does not change."""


@dataclass
class Setbacks:
    """The number of retries by clients, and the reasons."""

    reasons: Counter[str] = field(default_factory=Counter[str])


@dataclass
class Caller:
    """Calls the gateways of `urls`; each call begins at one that `chance` picks.

    `silence`: seconds without a byte after which the client goes to another gateway.
    """

    http: httpx.AsyncClient
    urls: Sequence[str]
    chance: Random
    setbacks: Setbacks = field(default_factory=Setbacks)
    silence: float = 20.0

    async def call(self, story: Story, method: str, params: Json, *, agent: str = "desk") -> Json:
        """Return the result of a call to an agent, however long it takes.

        Raises: RefusedError: the answer is an error other than "not now".
        """
        while True:
            url = f"{self.chance.choice(self.urls)}/agents/{agent}"
            try:
                response = await self.http.post(url, json=_request(method, params), headers=HEADERS)
                return _result(_json_of(response))
            except (httpx.TransportError, _NotNowError) as failure:
                await self._give_way(story, method, failure)

    async def follow(self, story: Story, params: Json) -> AsyncGenerator[Json]:
        """Send a message, and yield the events of its task until it ends, each of them once.

        After a lost connection the client resumes after its last event.
        """
        while not story.is_over:
            method, asked = "SendStreamingMessage", params
            if story.task_id and self.chance.random() < 0.5:
                method, asked = "SubscribeToTask", {"id": story.task_id}
            try:
                async with aclosing(self._connect(story, method, asked)) as events:
                    async for event in events:
                        yield event
                self.setbacks.reasons["a stream ended early"] += not story.is_over
            except (httpx.TransportError, _NotNowError) as failure:
                await self._give_way(story, method, failure)

    async def download(self, story: Story, path: str) -> bytes:
        """Return the content of a part of an artifact, from the first gateway that serves it."""
        while True:
            try:
                response = await self.http.get(f"{self.chance.choice(self.urls)}{path}")
                return _content(response)
            except (httpx.TransportError, _NotNowError) as failure:
                await self._give_way(story, "download", failure)

    async def _connect(self, story: Story, method: str, params: Json) -> AsyncGenerator[Json]:
        url = self.chance.choice(self.urls)
        headers = {**HEADERS, "Last-Event-ID": story.last_id} if story.last_id else HEADERS
        body = _request(method, params)
        async with self.http.stream(
            "POST", url, json=body, headers=headers, timeout=self.silence
        ) as response:
            if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                await response.aread()
                _result(_json_of(response))
                raise _NotNowError("no stream")
            event_id = data = ""
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    event_id = value
                elif name == "data":
                    data = value
                elif not line and data:
                    event = _result(json.loads(data))
                    story.take(event, event_id)
                    event_id = data = ""
                    yield event

    async def _give_way(self, story: Story, method: str, failure: Exception) -> None:
        reason = type(failure).__name__ if isinstance(failure, httpx.TransportError) else str(failure)
        self.setbacks.reasons[reason] += 1
        story.note(f"{method}: {reason}; asks again")
        await asyncio.sleep(PAUSE)


class _NotNowError(Exception):
    """The gateway answered: not now."""


def _content(response: httpx.Response) -> bytes:
    """Return the downloaded content.

    Raises: _NotNowError: a server behind the gateway is away. RefusedError: any other error.
    """
    if response.status_code in {502, 503, 504}:  # the gateway, or a proxy before it
        raise _NotNowError(str(response.status_code))
    if not response.is_success:
        raise RefusedError(f"{response.url}: {response.status_code} {response.text[:200]}")
    return response.content


def _json_of(response: httpx.Response) -> Json:
    """Return the body of an answer.

    Raises: _NotNowError: it is not JSON; a gateway that stops does not finish its answers.
    """
    try:
        return response.json()
    except json.JSONDecodeError:
        raise _NotNowError(f"{response.status_code} without JSON: {response.text[:40]!r}") from None


def _request(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _result(answer: Json) -> Json:
    """Return the result of a response.

    Raises: _NotNowError: a server behind the gateway is away. RefusedError: any other error.
    """
    if error := answer.get("error"):
        reasons = [detail.get("reason") for detail in cast("list[Json]", error.get("data") or [])]
        if "UNAVAILABLE" in reasons:
            raise _NotNowError(error["message"][:60])
        raise RefusedError(json.dumps(error)[:300])
    return answer["result"]
