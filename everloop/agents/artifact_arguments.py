"""The arguments of the tools that write artifacts, as a model reads and writes them."""

from base64 import b64decode
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, Field, JsonValue, model_validator

from everloop.agents.artifact_drafts import content_field, written_part
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import FilePart, Part
from everloop.workflows.contract.part_rules import url_flaw


def _unreserved(artifact_id: str) -> str:
    if artifact_id == RESPONSE_ARTIFACT:
        raise ValueError(f"{RESPONSE_ARTIFACT!r} is the id of your own answer; choose another one")
    return artifact_id


ArtifactId = Annotated[
    str,
    Field(
        min_length=1,
        validation_alias=AliasChoices("artifact_id", "artifactId"),
        description="Id of the artifact, unique in this conversation; say, quarterly-report.",
    ),
    AfterValidator(_unreserved),
]
LastChunk = Annotated[
    bool,
    Field(
        validation_alias=AliasChoices("last_chunk", "lastChunk"),
        description="true: the artifact is complete with this; false: more follows in further calls.",
    ),
]
MediaType = Annotated[
    str,
    Field(
        validation_alias=AliasChoices("media_type", "mediaType"),
        description="MIME type, say text/markdown. Give it before the content.",
    ),
]


class WrittenPart(BaseModel):
    """A part: one of text, data, raw and url."""

    media_type: MediaType = ""
    filename: str = Field(default="", description="File name, if it is a file. Give it before the content.")
    text: str | None = Field(default=None, description="The content, if it is text.")
    data: JsonValue = Field(default=None, description="The content, if it is a JSON value.")
    raw: str | None = Field(default=None, description="The content in base64, if it is binary.")
    url: str | None = Field(default=None, description="http(s) address of the content, if it lies elsewhere.")

    @model_validator(mode="after")
    def _holds_one_content(self) -> "WrittenPart":
        match content_field(self.model_dump(exclude_unset=True)):
            case "raw":
                _size_of(self.raw or "")
            case "url" if flaw := url_flaw(self.url or ""):
                raise ValueError(f"url {flaw}")
            case _:
                pass
        return self

    @property
    def part(self) -> Part:
        """The part as the artifact store takes it."""
        part = written_part(self.model_dump(exclude_unset=True))
        if isinstance(part, FilePart) and part.content:
            return part.model_copy(update={"size": _size_of(part.content)})
        return part


class WrittenArtifact(BaseModel):
    """An artifact, or what is appended to one."""

    artifact_id: ArtifactId
    name: str = Field(default="", description="Name for people; only where the artifact begins.")
    description: str = Field(default="", description="What it is; only where the artifact begins.")
    parts: tuple[WrittenPart, ...] = Field(default=(), description="The content.")


def _size_of(content: str) -> int:
    try:
        return len(b64decode(content, validate=True))
    except ValueError:
        raise ValueError("raw is no base64; send text as text") from None
