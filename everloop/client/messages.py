"""Messages, as they are sent."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast
from uuid import uuid4

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue

from everloop.client.content import Content, Json, Part, struct
from everloop.client.errors import InvalidError

QUESTION = "question"
"""Key in the metadata of a message that names the question it answers."""

Files = Sequence[str | Path | Part]
"""Paths of files, or parts."""


async def parts_of(content: tuple[Content, ...], files: Files, data: Json) -> list[Part]:
    """Return the parts of a message.

    Raises:
        InvalidError: there is none, or a file cannot be read.
    """
    parts = [Part(text=each) if isinstance(each, str) else each for each in content]
    for each in files:
        part = each if isinstance(each, Part) else await asyncio.to_thread(Part.from_file, each)
        parts.append(part)
    if data is not None:
        parts.append(data_part(data))
    if not parts:
        raise InvalidError("the message is empty; give a text, parts, files= or data=")
    return parts


def data_part(value: Json) -> Part:
    """Return a part that holds a JSON value."""
    return Part(data=cast("JsonValue", value))


def message_of(
    parts: Sequence[Part], metadata: Mapping[str, Json] | None, *, message_id: str, **ids: str
) -> pb.Message:
    """Return a message of the user; `ids` are those of context and task. Without an id it gets a new one."""
    return pb.Message(
        message_id=message_id or str(uuid4()),
        role=pb.Role.ROLE_USER,
        parts=[part.to_proto() for part in parts],
        metadata=struct(metadata) if metadata else None,
        **ids,
    )


def message_json(message: pb.Message) -> dict[str, JsonValue]:
    """Return a message as JSON."""
    return cast("dict[str, JsonValue]", MessageToDict(message))
