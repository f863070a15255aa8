"""What is said to a peer and what it says, part by part."""

import json
from collections.abc import Iterable, Sequence
from typing import cast

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from pydantic import JsonValue

from everloop.agents.peer.errors import PeerError
from everloop.agents.tool_context import ToolContext

MAX_SENT = 10 * 1024 * 1024
"""Bytes of all files that go with one request."""


def value_part(value: JsonValue) -> pb.Part:
    """Return a part that holds a value: text as text, anything else as data."""
    if isinstance(value, str):
        return pb.Part(text=value)
    # ParseDict takes any JSON value where the message is a Value; its annotation knows objects only.
    return pb.Part(data=ParseDict(cast("dict[str, JsonValue]", value), Value()))


def value_of(part: pb.Part) -> JsonValue:
    """Return the value of a data part. Protobuf knows no integers; what is one comes back as one."""
    return _with_integers(cast("JsonValue", MessageToDict(part.data)))


def joined(parts: Iterable[pb.Part]) -> list[pb.Part]:
    """Return the parts of an artifact, of texts that follow each other one: they were appended as pieces."""
    whole: list[pb.Part] = []
    for part in parts:
        if whole and _is_plain(part) and _is_plain(whole[-1]):
            whole[-1] = pb.Part(text=whole[-1].text + part.text)
        else:
            whole.append(part)
    return whole


def text_of(parts: Sequence[pb.Part]) -> str:
    """Return the texts of a message or an artifact, data as JSON; files have none."""
    return "\n".join(filter(None, map(_text_of, parts)))


def words_of(message: pb.Message) -> str:
    """Return the texts of a message alone: data beside them says the same to programs."""
    return "\n".join(part.text for part in message.parts if part.text.strip()) or text_of(message.parts)


async def file_parts(call: ToolContext, artifact_ids: Sequence[str]) -> list[pb.Part]:
    """Return the content of artifacts as parts of a message.

    Raises:
        PeerError: they are too large to be sent.
        ArtifactError: there is no such artifact.
    """
    parts: list[pb.Part] = []
    left = MAX_SENT
    for artifact_id in artifact_ids:
        for part in (await call.artifacts.get(artifact_id)).parts:
            if part.url:
                parts.append(pb.Part(url=part.url, media_type=part.media_type, filename=part.filename))
                continue
            content = bytearray()
            async for piece in call.artifacts.read(artifact_id, part.index):
                content += piece
                if len(content) > left:
                    raise PeerError(
                        f"with {artifact_id!r} the files have more than {MAX_SENT:,} bytes; send fewer"
                    )
            left -= len(content)
            parts.append(_stored(bytes(content), part.kind, part.media_type, part.filename or artifact_id))
    return parts


def _stored(content: bytes, kind: str, media_type: str, filename: str) -> pb.Part:
    if kind == "data":
        part = value_part(json.loads(content))
    elif kind == "text":
        part = pb.Part(text=content.decode())
    else:
        part = pb.Part(raw=content)
    part.media_type, part.filename = media_type, filename
    return part


def _is_plain(part: pb.Part) -> bool:
    return part == pb.Part(text=part.text)


def _with_integers(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text_of(part: pb.Part) -> str:
    if part.HasField("data"):
        return json.dumps(value_of(part), ensure_ascii=False)
    return part.text
