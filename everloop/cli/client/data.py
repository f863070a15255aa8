"""What a client answers, as JSON: the names are those of docs/client.md."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import cast

from pydantic import BaseModel, JsonValue

SEEN = "events"
"""What a call saw on the way is no part of the task."""

STEP = 1000
UNITS = ("KB", "MB", "GB")

TIME = "%Y-%m-%d %H:%M:%S"


def plain(value: object) -> JsonValue:
    """Return an answer as JSON: bytes as base64, times as ISO 8601."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[object]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value) if each.name != SEEN}
    return _plain_scalar(value)


def _plain_scalar(value: object) -> JsonValue:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return str(value.value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def local_time(moment: datetime | None) -> str:
    """Return a time as people here read it; empty if there is none."""
    return f"{moment.astimezone():{TIME}}" if moment else ""


def amount(count: int) -> str:
    """Return a number of bytes for people."""
    if count < STEP:
        return f"{count} bytes"
    size, units = count / STEP, list(UNITS)
    while size >= STEP and len(units) > 1:
        size, units = size / STEP, units[1:]
    return f"{size:.1f} {units[0]}"
