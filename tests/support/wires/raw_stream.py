"""A client that reads server-sent events itself, so that it can resume after the last one."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx

Event = dict[str, Any]
"""A stream response of A2A 1.0 as JSON."""


class RawStream:
    """The events of a task that one client has read, over any number of connections.

    `texts` are the artifacts' texts, by the rules of A2A 1.0 §4.2.2.
    """

    def __init__(self) -> None:
        self.task_id = ""
        self.context_id = ""
        self.last_id = ""
        self.events: list[Event] = []
        self.texts: dict[str, str] = {}
        self.complete: set[str] = set()
        self.state = ""

    @asynccontextmanager
    async def sent(self, url: str, text: str, **headers: str) -> AsyncGenerator[AsyncIterator[Event]]:
        """Yield the events that follow a message."""
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        async with self._stream(url, "SendStreamingMessage", {"message": message}, headers) as events:
            yield events

    @asynccontextmanager
    async def resumed(self, url: str) -> AsyncGenerator[AsyncIterator[Event]]:
        """Yield the events after the last one that was read."""
        headers = {"Last-Event-ID": self.last_id}
        async with self._stream(url, "SubscribeToTask", {"id": self.task_id}, headers) as events:
            yield events

    @asynccontextmanager
    async def _stream(
        self, url: str, method: str, params: object, headers: dict[str, str]
    ) -> AsyncGenerator[AsyncIterator[Event]]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with (
            httpx.AsyncClient(timeout=60) as http,
            http.stream("POST", url, json=body, headers={"A2A-Version": "1.0", **headers}) as response,
            aclosing(self._events(response)) as events,
        ):
            yield events

    async def _events(self, response: httpx.Response) -> AsyncGenerator[Event]:
        position = ""
        async for line in response.aiter_lines():
            name, _, value = line.partition(":")
            if name == "id":
                position = value.strip()
            elif name == "data":
                answer = json.loads(value)
                assert "result" in answer, answer
                self._add(answer["result"])
                # Only now: a connection that breaks earlier leaves the position unchanged.
                self.last_id = position or self.last_id
                yield answer["result"]

    def _add(self, event: Event) -> None:
        self.events.append(event)
        if task := event.get("task"):
            self.task_id, self.context_id, self.state = task["id"], task["contextId"], task["status"]["state"]
            self.texts = {a["artifactId"]: _text(a) for a in task.get("artifacts", [])}
        elif update := event.get("statusUpdate"):
            self.state = update["status"]["state"]
        elif update := event.get("artifactUpdate"):
            artifact = update["artifact"]
            before = self.texts.get(artifact["artifactId"], "") if update.get("append") else ""
            self.texts[artifact["artifactId"]] = before + _text(artifact)
            if update.get("lastChunk"):
                self.complete.add(artifact["artifactId"])


def _text(artifact: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in artifact.get("parts", []))
