"""The schema of models.toml, and its validation errors for people."""

import datetime as dt
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from everloop.runtime.environment import OURS, StartError
from everloop.runtime.outbound.policy import problem_of_headers
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import Usage
from everloop.workflows.contract.parts import is_http_url


class ModelsFileError(StartError):
    """A models.toml cannot be used; the message is one line and shows no value."""


# The tables. The defaults of their fields are those of `everloop.models.catalogue`: fields that are not set
# are not passed to a provider, or to a model.

_CLOSED = ConfigDict(extra="forbid", hide_input_in_errors=True)
_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)

_Count = Annotated[int, Field(ge=1)]
_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Rungs = tuple[Literal["json_schema", "json_object", "tool", "prompt"], ...]
_Fields = dict[str, JsonValue]
_TOKENS = 1_000_000


def check_address(address: str) -> str:
    """Return the address of a provider. ValueError: it is invalid."""
    if not is_http_url(address):
        raise ValueError("give an address, such as http://gpu:8000/v1")
    return address


def _check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    if problem := problem_of_headers({name: value for name, value in headers.items() if value[:1] != "$"}):
        raise ValueError(problem)
    return headers


_Address = Annotated[str, AfterValidator(check_address)]
_Headers = Annotated[Mapping[str, str], AfterValidator(_check_headers)]
_KIND = re.compile(r"chat|responses|[\w.]+:\w+")


def _check_kind(kind: str) -> str:
    if not _KIND.fullmatch(kind):
        raise ValueError('give "chat", "responses", or where your own is: "module:attribute"')
    return kind


_Kind = Annotated[str, AfterValidator(_check_kind)]


@dataclass(frozen=True, config=_CLOSED)
class _Settings(ModelSettings):
    """Model settings, with times in seconds."""

    @field_validator("extra_headers")
    @classmethod
    def _check_headers(cls, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if problem := problem_of_headers(headers or {}):
            raise ValueError(problem)
        return headers


@dataclass(frozen=True, config=_CLOSED)
class Price:
    """US dollars per million tokens. Cached ones without a price of their own cost as much as others."""

    input: _Dollars
    output: _Dollars
    cached_input: _Dollars | None = None
    cache_write: _Dollars | None = None

    def cost(self, usage: Usage) -> float:
        """Return the cost of these tokens in US dollars."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        cost = max(0, usage.input_tokens - cached - written) * self.input + usage.output_tokens * self.output
        cost += cached * (self.input if self.cached_input is None else self.cached_input)
        cost += written * (self.input if self.cache_write is None else self.cache_write)
        return cost / _TOKENS


class EntryTable(BaseModel):
    """Fields of a model, and of all models of a provider."""

    model_config = _STRICT

    takes: tuple[str, ...] = ()
    omit: frozenset[str] = frozenset()
    output: _Rungs = ()
    settings: _Settings = Field(default_factory=_Settings)


class ModelTable(EntryTable):
    """Fields of a model."""

    window: _Count = 1
    price: Price | None = None
    starts_thinking: bool = False
    named_call_ids: bool = False


class ProviderTable(EntryTable):
    """Fields of a provider."""

    kind: _Kind = ""
    base_url: _Address = ""
    base_url_variable: str = ""
    key_variable: str = ""
    key_header: str = ""
    headers: _Headers = Field(default_factory=dict)
    query: Mapping[str, str] = Field(default_factory=dict)
    concurrency: _Count = 1
    requests_per_minute: _Count = 1
    tokens_per_minute: _Count = 1
    max_tokens_field: str = ""
    effort: str = ""
    late_system: Literal["system", "user", "developer"] = "system"
    reply_after_results: bool = False
    cache: Literal["", "key", "breakpoints"] = ""
    fill_message: _Fields = Field(default_factory=dict[str, JsonValue])
    fill_call: _Fields = Field(default_factory=dict[str, JsonValue])


class ModelsFile(BaseModel):
    """The complete file."""

    model_config = _STRICT

    date: dt.date | None = None
    providers: Mapping[str, ProviderTable] = Field(default_factory=dict)
    models: Mapping[str, ModelTable] = Field(default_factory=dict)


_TABLES: Mapping[str, Iterable[str]] = {
    "": ModelsFile.model_fields,
    "providers": ProviderTable.model_fields,
    "models": ModelTable.model_fields,
    "price": [each.name for each in fields(Price)],
    "settings": [each.name for each in fields(ModelSettings)],
}
"""The fields of each table, by the name of the table or of its group."""


_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
_TABLE = "give a table, such as { name = 1 }"
_SECONDS = "give seconds, such as 60"
_EXPECTED = {
    "dataclass_type": _TABLE,
    "dict_type": _TABLE,
    "mapping_type": _TABLE,
    "model_type": _TABLE,
    "time_delta_parsing": _SECONDS,
    "time_delta_type": _SECONDS,
}
"""Replacements for Python terms of pydantic."""


def read_file(path: Path, text: str) -> ModelsFile:
    """Read a file.

    Raises:
        ModelsFileError: it is not TOML, or a field in it is unknown or wrong.
    """
    try:
        return ModelsFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ModelsFileError(f"{path}: no TOML: {error}") from None
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        # A misspelt field is also a missing one: the error names the misspelt one.
        first = next((each for each in problems if each["type"] in _UNKNOWN), problems[0])
        raise ModelsFileError(f"{path}: {_explain(first)}") from None


def _explain(problem: ErrorDetails) -> str:
    *table, name = map(str, problem["loc"])
    place = ".".join([*table, name])
    if problem["type"] not in _UNKNOWN:
        return f"{place}: {_EXPECTED.get(problem['type']) or problem['msg'].removeprefix(OURS)}"
    kind = next((each for each in reversed(table) if each in {"price", "settings"}), "".join(table[:1]))
    names = sorted(_TABLES[kind])
    near = get_close_matches(name, names, n=1)
    return f"{place}: there is no such field; {meant(near, names)}"


def meant(near: Sequence[str], names: Sequence[str]) -> str:
    """Return a suggestion in place of an unknown name."""
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
