"""Server-sent events by HTML §9.2, strict enough to detect other streams."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict


@dataclass(frozen=True)
class Event:
    """One event: its id, empty if it has none, and its JSON, None for the fields after the last event.

    `fields` are all that it has; a comment is the field "".
    """

    id: str
    data: Any
    fields: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    @property
    def result(self) -> dict[str, Any]:
        """The content without a JSON-RPC envelope."""
        return self.data.get("result", self.data)

    @property
    def response(self) -> pb.StreamResponse:
        """The same in the form of 1.0."""
        return ParseDict(self.result, pb.StreamResponse())

    @property
    def text(self) -> str:
        """The text that it adds to an artifact."""
        artifact = self.result.get("artifactUpdate", self.result).get("artifact", {})
        return "".join(part.get("text", "") for part in artifact.get("parts", ()))


async def events_of(response: httpx.Response) -> AsyncGenerator[Event]:
    """Yield the events of a stream, and in the end the fields after the last one."""
    assert response.headers["content-type"].split(";")[0] == "text/event-stream"
    fields: dict[str, str] = {}
    async for line in _lines(response.aiter_text()):
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield Event(fields.get("id", ""), json.loads(fields["data"]), fields)
            fields = {}
    if "retry" in fields:
        yield Event("", None, fields)


async def _lines(texts: AsyncIterator[str]) -> AsyncGenerator[str]:
    """Yield lines; httpx would also split them at Unicode line ends, which may be inside of JSON."""
    rest = ""
    async for text in texts:
        *lines, rest = (rest + text).replace("\r\n", "\n").split("\n")
        for line in lines:
            yield line
