"""What authors set of an agent and its tasks pin: how it asks models, what it recalls, how it makes room."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Annotated, Any, Literal, Self, cast

from pydantic import ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

_TOLERANT = ConfigDict(extra="ignore", hide_input_in_errors=True)
"""As for all wire types. Authors write those of `everloop.agents.limits`, which are strict."""

_COUNT = "a whole number from 1"

_Room = Annotated[int, Field(ge=1, description=f"{_COUNT}; no memory is memory=None")]


@dataclass(frozen=True, config=_TOLERANT)
class Compaction:
    """How old messages make room when the prompt gets too long; the first message always stays."""

    strategy: Literal["window", "summary"] = "window"
    """Whether they are left out ("window"), or the model sums them up ("summary")."""
    prompt_tokens: Annotated[
        int | None, Field(ge=1, description=f"{_COUNT}, or None to wait for the provider to refuse")
    ] = None
    """Do so as soon as a prompt is about this long; None: when the provider refuses it."""


@dataclass(frozen=True, config=_TOLERANT)
class Memory:
    """What a task recalls of the earlier tasks of its context: the newest messages that fit."""

    max_messages: _Room = 20
    max_tokens: _Room = 8000
    """About so many, all in all."""
    strategy: Literal["window", "summary", "hierarchical"] = "window"
    """What does not fit is left out ("window"), or the model sums it up once the answer is given: in one
    summary ("summary"), or in summaries of summaries ("hierarchical"), which keep more of a long
    conversation."""
    auto_compact: bool = True
    """False: nothing is summed up by itself."""


# How a model is asked, and how long it is waited for.

TOOL_CHOICES = ("auto", "none", "required")
"""What else `tool_choice` may be than the name of a tool."""

_Count = Annotated[int | None, Field(ge=1, description=_COUNT)]
_Wait = Annotated[timedelta | None, Field(gt=timedelta(0), description="a timedelta above 0")]
_Texts = Annotated[Sequence[str] | None, Field(description="a list of texts")]


@dataclass(frozen=True, config=_TOLERANT)
class ModelSettings:
    """How a model is asked, and how long it is waited for. None: not set; see `over`.

    It stands in histories: no secrets in `extra_headers`, `extra_body` and `provider_tools`.
    """

    temperature: Annotated[float | None, Field(ge=0, le=2, description="a number from 0 to 2")] = None
    top_p: Annotated[float | None, Field(gt=0, le=1, description="a number above 0, at most 1")] = None
    max_tokens: _Count = None
    """Of one reply, reasoning included; sent under the name that the provider wants."""
    stop: _Texts = None
    """Where one of these begins the reply ends."""
    seed: int | None = None
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How much a model thinks that reasons."""
    verbosity: Literal["low", "medium", "high"] | None = None
    tool_choice: Annotated[
        str | None, Field(min_length=1, description='"auto", "none", "required", or the name of a tool')
    ] = None
    """"auto", "none", "required", or the name of a tool. The last two hold until a tool was called for the
    last message of the user: otherwise no task would come to its answer."""
    parallel_tool_calls: bool | None = None
    service_tier: str | None = None
    cache: bool | None = None
    """False: no prompt-cache hints (default: as the provider wants them)."""
    thinking_tags: Annotated[
        Sequence[Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]*$")]] | None,
        Field(description="a list of names of tags, without brackets, such as ['think']"),
    ] = None
    """Inline tags whose content is thought (default: think, thinking, reasoning); (): none."""
    provider_tools: Annotated[
        Sequence[dict[str, JsonValue]] | None,
        Field(description="a list of dicts of JSON, such as {'type': 'web_search'}"),
    ] = None
    """Tools that the provider runs itself."""
    extra_body: Annotated[dict[str, JsonValue] | None, Field(description="a dict of JSON values")] = None
    """Further fields of the request; they win over all but model, messages, tools and stream."""
    extra_headers: Annotated[dict[str, str] | None, Field(description="a dict of texts")] = None
    output_by: Literal["auto", "response_format", "tool", "prompt"] | None = None
    """How an answer that has to be data is asked for (default: "auto", the best that the provider takes)."""
    retries: Annotated[int | None, Field(ge=0, le=100, description="a whole number from 0 to 100")] = None
    """How often a call is tried again after failures, where there is no other model (default 20)."""
    fall_back_after: _Count = None
    """After how many failures the next model is asked, where there is one (default 2)."""
    fall_back_wait: _Wait = None
    """The next model is asked at once where the provider wants a longer wait than this (default 15 s)."""
    first_token: _Wait = None
    """How long it may be silent before its reply (default 5 min); keep-alive comments are no token."""
    between_tokens: _Wait = None
    """How long it may be silent within its reply (default 5 min)."""
    on_length: Literal["continue", "tell", "accept", "fail"] | None = None
    """What becomes of a reply that was cut off at the limit of tokens (default: "continue")."""
    on_content_filter: Literal["fail", "tell", "accept"] | None = None
    """What becomes of one that the provider's filter stopped (default: "fail")."""
    on_refusal: Literal["reject", "accept", "fail"] | None = None
    """What becomes of the task if the model declines (default: "reject")."""
    on_empty: Literal["tell", "accept", "fail"] | None = None
    """What becomes of an empty answer (default: "tell")."""

    def over(self, other: "ModelSettings") -> Self:
        """Return these settings, with those of `other` where these are not set.

        Of dicts the keys of both count; where both have one, ours does.
        """
        ours, theirs = dict(self.given()), dict(other.given())
        if not theirs:
            return self
        joined = {name: {**theirs[name], **ours[name]} for name in _DICTS & ours.keys() & theirs.keys()}
        return replace(self, **{**theirs, **ours, **joined})

    def given(self) -> Iterable[tuple[str, Any]]:
        """Yield the name and the value of each setting that is set."""
        values = ((name, getattr(self, name)) for name in _SETTINGS)
        return ((name, value) for name, value in values if value is not None)

    def summary(self) -> str:
        """Say in a few words what is set, for operators: `temperature 0.2, effort high`; no dict's values."""
        return ", ".join(f"{name} {_brief(value)}".rstrip() for name, value in self.given())


_SETTINGS = tuple(each.name for each in fields(ModelSettings))
_DICTS = {"extra_body", "extra_headers"}


def _brief(value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case timedelta():
            return f"{value.total_seconds():g} s"
        case str() | int() | float():
            return f"{value}"
        case dict():
            return " ".join(cast("Mapping[str, object]", value))
        case _:
            return f"({len(cast('Sequence[object]', value))})"
