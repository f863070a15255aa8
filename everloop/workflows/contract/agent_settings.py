"""Settings of an agent that its tasks pin: model calls, memory and compaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Annotated, Any, Literal, Self, cast

from pydantic import ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

_TOLERANT = ConfigDict(extra="ignore", hide_input_in_errors=True)
"""As for all wire types. Authors use those of `everloop.agents.limits`, which are strict."""

_COUNT = "a whole number from 1"

Strategy = Literal["window", "summary"]
"""Treatment of old messages: left out ("window"), or summed up by the model ("summary")."""

_Room = Annotated[int, Field(ge=1, description=f"{_COUNT}; no memory is memory=None")]


@dataclass(frozen=True, config=_TOLERANT)
class Compaction:
    """Compaction of a long prompt; the first message always stays."""

    strategy: Strategy = "window"
    """Whether old messages are left out ("window") or summed up by the model ("summary")."""
    prompt_tokens: Annotated[
        int | None, Field(ge=1, description=f"{_COUNT}, or None to wait for the provider to refuse")
    ] = None
    """Prompt length in tokens, estimated, that starts it; None: when the provider rejects the prompt."""


@dataclass(frozen=True, config=_TOLERANT)
class Memory:
    """Recall of the earlier tasks of the context: the newest messages within a limit."""

    max_messages: _Room = 20
    max_tokens: _Room = 8000
    """Approximate total of recalled tokens."""
    strategy: Strategy = "window"
    """Whether older messages are left out ("window") or summed up by the model after the answer
    ("summary")."""
    auto_compact: bool = True
    """False: nothing is summed up automatically."""


# Parameters and timeouts of model calls.

TOOL_CHOICES = ("auto", "none", "required")
"""Values of `tool_choice` besides the name of a tool."""

_Count = Annotated[int | None, Field(ge=1, description=_COUNT)]
_Wait = Annotated[timedelta | None, Field(gt=timedelta(0), description="a timedelta above 0")]
_Texts = Annotated[Sequence[str] | None, Field(description="a list of texts")]


@dataclass(frozen=True, config=_TOLERANT)
class ModelSettings:
    """Parameters and timeouts of model calls. None: not set; see `over`.

    It is part of histories: no secrets in `extra_headers`, `extra_body` and `provider_tools`.
    """

    temperature: Annotated[float | None, Field(ge=0, le=2, description="a number from 0 to 2")] = None
    top_p: Annotated[float | None, Field(gt=0, le=1, description="a number above 0, at most 1")] = None
    max_tokens: _Count = None
    """Limit of one reply, reasoning included; sent under the provider's name of the field."""
    stop: _Texts = None
    """Texts that end the reply."""
    seed: int | None = None
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """Reasoning effort of the model."""
    verbosity: Literal["low", "medium", "high"] | None = None
    tool_choice: Annotated[
        str | None, Field(min_length=1, description='"auto", "none", "required", or the name of a tool')
    ] = None
    """"auto", "none", "required", or the name of a tool. The last two apply until a tool was called for
    the last message of the user: otherwise no task would reach its answer."""
    parallel_tool_calls: bool | None = None
    service_tier: str | None = None
    cache: bool | None = None
    """False: no prompt-cache hints (default: those of the provider)."""
    thinking_tags: Annotated[
        Sequence[Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]*$")]] | None,
        Field(description="a list of names of tags, without brackets, such as ['think']"),
    ] = None
    """Inline tags whose content is reasoning (default: think, thinking, reasoning); (): none."""
    provider_tools: Annotated[
        Sequence[dict[str, JsonValue]] | None,
        Field(description="a list of dicts of JSON, such as {'type': 'web_search'}"),
    ] = None
    """Tools that the provider runs."""
    extra_body: Annotated[dict[str, JsonValue] | None, Field(description="a dict of JSON values")] = None
    """Further fields of the request; they override all but model, messages, tools and stream."""
    extra_headers: Annotated[dict[str, str] | None, Field(description="a dict of texts")] = None
    output_by: Literal["auto", "response_format", "tool", "prompt"] | None = None
    """How the output model is enforced (default: "auto", the best way that the provider supports)."""
    retries: Annotated[int | None, Field(ge=0, le=100, description="a whole number from 0 to 100")] = None
    """Retries of a failed call without a fallback model (default 20)."""
    fall_back_after: _Count = None
    """Failures before the fallback model is called (default 2)."""
    fall_back_wait: _Wait = None
    """The fallback model is called at once if the provider requests a longer wait (default 15 s)."""
    first_token: _Wait = None
    """Timeout until the first token (default 5 min); keep-alive comments do not count."""
    between_tokens: _Wait = None
    """Timeout between tokens (default 5 min)."""
    on_length: Literal["continue", "tell", "accept", "fail"] | None = None
    """Handling of a reply that was cut off at the limit of tokens (default: "continue")."""
    on_content_filter: Literal["fail", "tell", "accept"] | None = None
    """Handling of a reply that the provider's filter stopped (default: "fail")."""
    on_refusal: Literal["reject", "accept", "fail"] | None = None
    """Handling of a refusal of the model (default: "reject")."""
    on_empty: Literal["tell", "accept", "fail"] | None = None
    """Handling of an empty answer (default: "tell")."""

    def over(self, other: "ModelSettings") -> Self:
        """Return these settings, with those of `other` as defaults.

        Dicts are merged key by key; ours take precedence.
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
        """Summarize the settings for operators: `temperature 0.2, effort high`; no dict's values."""
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
