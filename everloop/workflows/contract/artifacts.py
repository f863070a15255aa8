"""Artifacts in the store: outputs of tasks, and files that clients sent.

Source: A2A 1.0 §4.1.7 (Artifact), §4.1.6 (Part).
"""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import JsonValue

from everloop.workflows.contract.payloads import Wire


class ArtifactStatus(StrEnum):
    """State of an artifact. Only a building one accepts more content."""

    BUILDING = "building"
    COMPLETE = "complete"
    FAILED = "failed"


PartKind = Literal["text", "file", "data", "rows"]
"""Text in UTF-8, bytes, one JSON value, or rows of a dataset (JSON objects, one a line)."""


class ArtifactPart(Wire):
    """Metadata of a part. `size` is in bytes of content, `rows` counts the rows of a dataset.

    `row_schema` is the JSON schema of each row of a dataset. `url` is the address of a file that is
    stored elsewhere; its content is not stored here.
    """

    index: int
    kind: PartKind
    media_type: str
    filename: str = ""
    size: int = 0
    rows: int = 0
    row_schema: dict[str, JsonValue] | None = None
    url: str = ""


class ArtifactOperation(Wire):
    """One change of an artifact, for its history. `index` is that of the part.

    `id` is the caller's name of the operation, empty without one: an operation with a recorded name is
    not repeated.
    """

    kind: Literal["create", "append", "replace", "complete", "fail"]
    at: datetime
    index: int = 0
    id: str = ""


class StoredArtifact(Wire):
    """An artifact without the content of its parts.

    `context_id` is the key of the context (`names.context_key`). `task_id` is the task that created it.
    `is_input`: a file of a client, not an output. `version` counts the changes. `last_chunk_index` is
    that of the last append, -1 before the first. `operations` are the newest 100.
    """

    artifact_id: str
    context_id: str
    task_id: str
    name: str = ""
    description: str = ""
    parts: tuple[ArtifactPart, ...]
    version: int = 1
    status: ArtifactStatus = ArtifactStatus.BUILDING
    is_input: bool = False
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None = None
    last_chunk_index: int = -1
    operations: tuple[ArtifactOperation, ...] = ()
