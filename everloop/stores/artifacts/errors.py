"""Why an operation on an artifact is refused.

ArtifactError
├── ArtifactIdError          this is no id of an artifact
├── ArtifactNameError        a name, a media type or a URL is none
├── ArtifactMissingError     there is none of this id in this context
├── ArtifactExistsError      there is one already, and it was not to be replaced
├── ArtifactClosedError      it is complete or failed, and takes no more content
├── ArtifactKindError        a part is not of the kind that the operation is for
├── ArtifactReplacedError    its content was replaced while somebody read it
├── ArtifactOvertakenError   somebody else has changed it while it was written
├── PartCountError           it would have too many parts
├── PartIndexError           it has no part of this index
├── RowSchemaError           this is no JSON schema that rows can be checked against
└── RowInvalidError          a row does not fit the schema of its dataset

Whatever is raised, nothing has changed.
"""

from everloop.workflows.contract.artifacts import ArtifactStatus, PartKind

MAX_ID_BYTES = 255

MAX_PARTS = 1_000
"""Parts of an artifact: with each change all of them are gone through."""


class ArtifactError(Exception):
    """An operation on an artifact is refused; nothing has changed. Models and clients read the text."""

    def __reduce__(self) -> tuple[object, ...]:
        """Restore a copy by its attributes: `args` is the message alone, and `__init__` takes more."""
        return type(self).__new__, (type(self),), {"args": self.args, **vars(self)}


class ArtifactIdError(ArtifactError, ValueError):
    """This is no id of an artifact."""

    def __init__(self) -> None:
        super().__init__(
            f"this is no id of an artifact: expected 1 to {MAX_ID_BYTES} bytes of UTF-8 "
            "without control characters, and neither . nor .."
        )


class ArtifactNameError(ArtifactError, ValueError):
    """A name, a media type or a URL is none; `problem` says why, and what is expected."""

    def __init__(self, artifact_id: str, field: str, problem: str) -> None:
        super().__init__(f"{field} of artifact {artifact_id!r} {problem}")


class ArtifactMissingError(ArtifactError, LookupError):
    """There is none of this id in this context."""

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"there is no artifact {artifact_id!r} in this context; list the artifacts to see them"
        )


class ArtifactExistsError(ArtifactError):
    """There is one already, and it was not to be replaced."""

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"there is an artifact {artifact_id!r} in this context already; choose another id, or override it"
        )


class ArtifactClosedError(ArtifactError):
    """It is complete or failed, and takes no more content."""

    def __init__(self, artifact_id: str, status: ArtifactStatus) -> None:
        super().__init__(
            f"artifact {artifact_id!r} is {status} and takes no more content; make a new one, or override it"
        )


class ArtifactKindError(ArtifactError):
    """A part is not of the kind that the operation is for."""

    def __init__(self, artifact_id: str, index: int, kind: PartKind, reason: str) -> None:
        super().__init__(f"part {index} of artifact {artifact_id!r} is of kind {kind!r}: {reason}")


class ArtifactReplacedError(ArtifactError):
    """Its content was replaced while somebody read it."""

    def __init__(self, artifact_id: str, index: int) -> None:
        super().__init__(
            f"part {index} of artifact {artifact_id!r} was replaced while it was read; read it again"
        )


class ArtifactOvertakenError(ArtifactError):
    """Somebody else has changed an artifact while it was written."""

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"artifact {artifact_id!r} was changed by somebody else while it was written: nothing more is "
            "written to it; if two calls write it, let one follow the other"
        )


class PartCountError(ArtifactError):
    """It would have too many parts."""

    def __init__(self, artifact_id: str, count: int) -> None:
        super().__init__(
            f"artifact {artifact_id!r} would have {count} parts: expected at most {MAX_PARTS}; put more into "
            "each part, for example rows of one dataset"
        )


class PartIndexError(ArtifactError):
    """It has no part of this index."""

    def __init__(self, artifact_id: str, index: int, count: int) -> None:
        expected = f"expected 0 to {count - 1}" if count else "it has no parts"
        super().__init__(f"artifact {artifact_id!r} has no part {index}: {expected}")


class RowSchemaError(ArtifactError):
    """This is no JSON schema that rows can be checked against."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"rows cannot be checked against this schema (JSON Schema 2020-12): {reason}")


class RowInvalidError(ArtifactError):
    """A row does not fit the schema of its dataset; `row` counts from 0 within what was to be written."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row} of these is refused: {reason}; none of them was written")
