"""Errors of operations on artifacts.

ArtifactError
├── ArtifactIdError          the id is invalid
├── ArtifactNameError        a name, a media type or a URL is invalid
├── ArtifactMissingError     the context has no artifact of this id
├── ArtifactExistsError      it exists already, and was not to be replaced
├── ArtifactClosedError      it is complete or failed, and takes no more content
├── ArtifactKindError        a part is of another kind than the operation needs
├── ArtifactReplacedError    its content was replaced during a read
├── ArtifactOvertakenError   another writer changed it during a write
├── PartCountError           it would have too many parts
├── PartIndexError           it has no part of this index
├── RowSchemaError           rows cannot be checked against this JSON schema
└── RowInvalidError          a row does not match the schema of its dataset

After any of these errors nothing has changed.
"""

from everloop.workflows.contract.artifacts import ArtifactStatus, PartKind

MAX_ID_BYTES = 255

MAX_PARTS = 1_000
"""Limit of parts of an artifact: each change iterates over all of them."""


class ArtifactError(Exception):
    """An operation on an artifact is refused; nothing has changed. Models and clients read the text."""

    def __reduce__(self) -> tuple[object, ...]:
        """Restore a copy by its attributes: `args` is the message alone, and `__init__` takes more."""
        return type(self).__new__, (type(self),), {"args": self.args, **vars(self)}


class ArtifactIdError(ArtifactError, ValueError):
    """The id of an artifact is invalid."""

    def __init__(self) -> None:
        super().__init__(
            f"this is not an id of an artifact: expected 1 to {MAX_ID_BYTES} bytes of UTF-8 "
            "without control characters, and neither . nor .."
        )


class ArtifactNameError(ArtifactError, ValueError):
    """A name, a media type or a URL is invalid. `problem` names the reason and the expected value."""

    def __init__(self, artifact_id: str, field: str, problem: str) -> None:
        super().__init__(f"{field} of artifact {artifact_id!r} {problem}")


class ArtifactMissingError(ArtifactError, LookupError):
    """The context has no artifact of this id."""

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"there is no artifact {artifact_id!r} in this context; list the artifacts to see them"
        )


class ArtifactExistsError(ArtifactError):
    """The artifact exists already, and was not to be replaced."""

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"there is an artifact {artifact_id!r} in this context already; choose another id, or override it"
        )


class ArtifactClosedError(ArtifactError):
    """The artifact is complete or failed, and takes no more content."""

    def __init__(self, artifact_id: str, status: ArtifactStatus) -> None:
        super().__init__(
            f"artifact {artifact_id!r} is {status} and takes no more content; make a new one, or override it"
        )


class ArtifactKindError(ArtifactError):
    """A part is of another kind than the operation needs."""

    def __init__(self, artifact_id: str, index: int, kind: PartKind, reason: str) -> None:
        super().__init__(f"part {index} of artifact {artifact_id!r} is of kind {kind!r}: {reason}")


class ArtifactReplacedError(ArtifactError):
    """The content of an artifact was replaced during a read."""

    def __init__(self, artifact_id: str, index: int) -> None:
        super().__init__(
            f"part {index} of artifact {artifact_id!r} was replaced while it was read; read it again"
        )


class ArtifactOvertakenError(ArtifactError):
    """Another writer changed an artifact during a write."""

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"artifact {artifact_id!r} was changed by somebody else while it was written: nothing more is "
            "written to it; if two calls write it, let one follow the other"
        )


class PartCountError(ArtifactError):
    """The artifact would have too many parts."""

    def __init__(self, artifact_id: str, count: int) -> None:
        super().__init__(
            f"artifact {artifact_id!r} would have {count} parts: expected at most {MAX_PARTS}; put more into "
            "each part, for example rows of one dataset"
        )


class PartIndexError(ArtifactError):
    """The artifact has no part of this index."""

    def __init__(self, artifact_id: str, index: int, count: int) -> None:
        expected = f"expected 0 to {count - 1}" if count else "it has no parts"
        super().__init__(f"artifact {artifact_id!r} has no part {index}: {expected}")


class RowSchemaError(ArtifactError):
    """Rows cannot be checked against this JSON schema."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"rows cannot be checked against this schema (JSON Schema 2020-12): {reason}")


class RowInvalidError(ArtifactError):
    """A row does not match the schema of its dataset. `row` is its index within the operation."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row} of these is refused: {reason}; none of them was written")
