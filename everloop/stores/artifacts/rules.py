"""Rules of changes to artifacts: pure, the same for every store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic_core import from_json

from everloop.stores.artifacts.artifact_errors import (
    MAX_ID_BYTES,
    MAX_PARTS,
    ArtifactClosedError,
    ArtifactExistsError,
    ArtifactIdError,
    ArtifactKindError,
    ArtifactMissingError,
    ArtifactNameError,
    ArtifactOvertakenError,
    PartCountError,
    PartIndexError,
    RowInvalidError,
)
from everloop.stores.artifacts.changes import (
    AddParts,
    Append,
    Change,
    Complete,
    Create,
    Fail,
    NewPart,
    Replace,
    check_schema,
    count_rows,
    is_outdated,
)
from everloop.workflows.contract.artifacts import (
    ArtifactOperation,
    ArtifactPart,
    ArtifactStatus,
    StoredArtifact,
)
from everloop.workflows.contract.parts import (
    PATH_STEPS,
    filename_problem,
    media_type_problem,
    text_problem,
    url_problem,
)

MAX_OPERATIONS = 100
"""Limit of the operations in an artifact's log. An older operation could be repeated."""

MAX_NAME = 1_000
"""Limit of characters of the name of an artifact."""

MAX_DESCRIPTION = 10_000
"""Limit of characters of its description."""

_LAST_CONTROL, _DELETE = "\x1f", range(0x7F, 0xA0)


@dataclass(frozen=True)
class Write:
    """Content to write to part `index`: appended or, with `is_new`, in place of the old content."""

    index: int
    content: bytes
    is_new: bool = False


@dataclass(frozen=True)
class Changed:
    """The artifact after a change. `is_new`: all earlier content is removed."""

    artifact: StoredArtifact
    writes: tuple[Write, ...] = ()
    is_new: bool = False


@dataclass(frozen=True)
class OperationContext:
    """The artifact to change, the time, and the caller's id of this operation (empty: none).

    `follows`: required prefix of the id of the last operation.
    """

    context_id: str
    artifact_id: str
    at: datetime
    operation_id: str = ""
    follows: str = ""


def check_id(artifact_id: str) -> str:
    """Return the id if it is valid.

    Raises:
        ArtifactIdError: It is invalid.
    """
    try:
        length = len(artifact_id.encode())
    except UnicodeEncodeError as error:
        raise ArtifactIdError from error
    is_control = any(sign <= _LAST_CONTROL or ord(sign) in _DELETE for sign in artifact_id)
    if is_control or not 1 <= length <= MAX_ID_BYTES or artifact_id in PATH_STEPS:
        raise ArtifactIdError
    return artifact_id


def change_artifact(
    before: StoredArtifact | None, change: Change, operation: OperationContext
) -> Changed | None:
    """Return the result of a change, or None if it changes nothing.

    Raises:
        ArtifactError: The change is refused.
    """
    check_id(operation.artifact_id)
    done = [each.id for each in before.operations] if before else []
    if operation.operation_id and operation.operation_id in done:
        return None
    if is_outdated(operation.operation_id, done):
        raise ArtifactOvertakenError(operation.artifact_id)
    if isinstance(change, Create):
        return _create(before, change, operation)
    if before is None:
        raise ArtifactMissingError(operation.artifact_id)
    if operation.follows and not (done and done[-1].startswith(operation.follows)):
        raise ArtifactOvertakenError(operation.artifact_id)
    if isinstance(change, Complete | Fail):
        return _close(before, change, operation)
    return _continue(before, change, operation)


def part_of(artifact: StoredArtifact, index: int) -> ArtifactPart:
    """Return a part.

    Raises:
        PartIndexError: The index is out of range.
    """
    if not 0 <= index < len(artifact.parts):
        raise PartIndexError(artifact.artifact_id, index, len(artifact.parts))
    return artifact.parts[index]


def _continue(
    before: StoredArtifact, change: Append | AddParts | Replace, operation: OperationContext
) -> Changed:
    if before.status is not ArtifactStatus.BUILDING:
        raise ArtifactClosedError(before.artifact_id, before.status)
    match change:
        case Append():
            return _append(before, change, operation)
        case AddParts():
            return _add_parts(before, change, operation)
        case Replace():
            return _replace(before, change, operation)


def _create(before: StoredArtifact | None, change: Create, operation: OperationContext) -> Changed:
    if before and not change.override:
        raise ArtifactExistsError(operation.artifact_id)
    _check_names(
        operation,
        {
            "name": text_problem(change.name, MAX_NAME),
            "description": text_problem(change.description, MAX_DESCRIPTION),
        },
    )
    artifact = StoredArtifact(
        artifact_id=operation.artifact_id,
        context_id=operation.context_id,
        task_id=change.task_id,
        name=change.name,
        description=change.description,
        parts=_new_parts(operation, change.parts, 0),
        version=before.version if before else 0,
        is_input=change.is_input,
        created_at=operation.at,
        updated_at=operation.at,
        operations=before.operations if before else (),
    )
    artifact = _logged(artifact, "create", 0, operation, is_closing=change.complete)
    return Changed(artifact, _writes_of(change.parts, 0), is_new=True)


def _append(before: StoredArtifact, change: Append, operation: OperationContext) -> Changed:
    count = len(before.parts)
    index = count - 1 if change.index == -1 and count else change.index
    part = part_of(before, index)
    rows = _appended_rows(before.artifact_id, part, change)
    longer = part.model_copy(update={"size": part.size + len(change.content), "rows": part.rows + rows})
    parts = _with_part(before, longer).parts + _new_parts(operation, change.parts, count)
    update = {"parts": parts, "last_chunk_index": before.last_chunk_index + 1}
    artifact = before.model_copy(update=update)
    artifact = _logged(artifact, "append", index, operation, is_closing=change.last_chunk)
    writes = (Write(index, change.content),) if change.content else ()
    return Changed(artifact, writes + _writes_of(change.parts, count))


def _appended_rows(artifact_id: str, part: ArtifactPart, change: Append) -> int:
    if part.url:
        raise ArtifactKindError(artifact_id, part.index, part.kind, "it is a link without stored content")
    if part.kind == "data":
        raise ArtifactKindError(artifact_id, part.index, part.kind, "it can only be replaced as a whole")
    if part.kind != "rows":
        if change.rows:
            raise ArtifactKindError(artifact_id, part.index, part.kind, "rows go to a dataset")
        return 0
    found = count_rows(change.content, part.row_schema)
    if found != change.rows:
        raise RowInvalidError(found, f"expected {change.rows} rows, and there are {found}")
    return found


def _add_parts(before: StoredArtifact, change: AddParts, operation: OperationContext) -> Changed:
    first = len(before.parts)
    parts = before.parts + _new_parts(operation, change.parts, first)
    update = {"parts": parts, "last_chunk_index": before.last_chunk_index + 1}
    artifact = _logged(
        before.model_copy(update=update), "append", first, operation, is_closing=change.last_chunk
    )
    return Changed(artifact, _writes_of(change.parts, first))


def _replace(before: StoredArtifact, change: Replace, operation: OperationContext) -> Changed:
    part_of(before, change.index)
    (part,) = _new_parts(operation, (change.part,), change.index)
    artifact = _logged(_with_part(before, part), "replace", change.index, operation)
    return Changed(artifact, _writes_of((change.part,), change.index))


def _close(before: StoredArtifact, change: Complete | Fail, operation: OperationContext) -> Changed | None:
    is_complete = isinstance(change, Complete)
    status = ArtifactStatus.COMPLETE if is_complete else ArtifactStatus.FAILED
    if before.status is status:
        return None
    if before.status is not ArtifactStatus.BUILDING:
        raise ArtifactClosedError(before.artifact_id, before.status)
    closed = before.model_copy(
        update={"status": status, "completed_at": operation.at if is_complete else None}
    )
    return Changed(_logged(closed, "complete" if is_complete else "fail", 0, operation))


def _new_parts(operation: OperationContext, parts: Sequence[NewPart], first: int) -> tuple[ArtifactPart, ...]:
    if parts and first + len(parts) > MAX_PARTS:
        raise PartCountError(operation.artifact_id, first + len(parts))
    return tuple(_new_part(operation, part, index) for index, part in enumerate(parts, first))


def _new_part(operation: OperationContext, part: NewPart, index: int) -> ArtifactPart:
    _check_names(
        operation,
        {
            "media type": media_type_problem(part.media_type),
            "file name": filename_problem(part.filename),
            "url": url_problem(part.url) if part.url else "",
        },
    )
    if part.kind == "data" and not _is_json(part.content):
        raise ArtifactKindError(operation.artifact_id, index, part.kind, "its content is not JSON")
    check_schema(part.row_schema)
    return ArtifactPart(
        index=index,
        kind=part.kind,
        media_type=part.media_type,
        filename=part.filename,
        size=len(part.content),
        rows=count_rows(part.content, part.row_schema) if part.kind == "rows" else 0,
        row_schema=None if part.row_schema is None else dict(part.row_schema),
        url=part.url,
    )


def _check_names(operation: OperationContext, problems: Mapping[str, str]) -> None:
    """Raise ArtifactNameError for the first field that has a problem."""
    for field, problem in problems.items():
        if problem:
            raise ArtifactNameError(operation.artifact_id, field, problem)


def _is_json(content: bytes) -> bool:
    try:
        from_json(content, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def _writes_of(parts: Sequence[NewPart], first: int) -> tuple[Write, ...]:
    return tuple(Write(index, part.content, is_new=True) for index, part in enumerate(parts, first))


def _with_part(artifact: StoredArtifact, part: ArtifactPart) -> StoredArtifact:
    parts = (*artifact.parts[: part.index], part, *artifact.parts[part.index + 1 :])
    return artifact.model_copy(update={"parts": parts})


def _logged(
    artifact: StoredArtifact,
    kind: Literal["create", "append", "replace", "complete", "fail"],
    index: int,
    operation: OperationContext,
    *,
    is_closing: bool = False,
) -> StoredArtifact:
    """Return the artifact with the operation in its log, the next version, and its new status."""
    done = [ArtifactOperation(kind=kind, at=operation.at, index=index, id=operation.operation_id)]
    update: dict[str, object] = {"version": artifact.version + 1, "updated_at": operation.at}
    if is_closing:
        done.append(ArtifactOperation(kind="complete", at=operation.at))
        update |= {"status": ArtifactStatus.COMPLETE, "completed_at": operation.at}
    return artifact.model_copy(
        update={**update, "operations": (*artifact.operations, *done)[-MAX_OPERATIONS:]}
    )
