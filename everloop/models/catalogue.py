"""Catalogue of providers and their models: models.toml. Nothing in here loads a client."""

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue

from everloop.models.file import (
    EntryTable,
    ModelsFile,
    ModelsFileError,
    Price,
    check_address,
    meant,
    read_file,
)
from everloop.runtime.environment import Settings, StartError
from everloop.workflows.contract.agent_settings import ModelSettings

# Results of the catalogue.

_BOUNDARY = re.compile(r"[-@:]")


def _is_version(model: str, name: str) -> bool:
    return model == name or not name or (model.startswith(name) and bool(_BOUNDARY.match(model, len(name))))


def _longest(names: Iterable[str], model: str) -> str:
    return max((name for name in names if _is_version(model, name)), key=len, default="")


@dataclass(frozen=True)
class ModelEntry:
    """Data of a model at its provider; None: unknown."""

    window: int | None = None
    price: Price | None = None
    takes: tuple[str, ...] | None = None
    omit: frozenset[str] = frozenset()
    """Unsupported fields: of the request, and of messages that came from the model."""
    starts_thinking: bool = False
    """Whether its template writes the first <think>: a reply begins as a thought."""
    named_call_ids: bool = False
    """Whether its template derives the names of called tools from the ids of the calls: Kimi K2."""
    output: tuple[str, ...] = ()
    """Supported ways to enforce an output model, best first; empty: the most common ones."""
    settings: ModelSettings = field(default_factory=ModelSettings)


@dataclass(frozen=True)
class Provider:
    """Address and API variant of a provider. Its repr shows no key."""

    name: str
    kind: str = "chat"
    base_url: str = ""
    base_url_variable: str = ""
    """The variable with the address, for texts."""
    key: str = field(default="", repr=False)
    key_variable: str = ""
    """The variable with the key, for texts."""
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    query: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_tokens_field: str = "max_tokens"
    effort: str = "reasoning_effort"
    """The field for reasoning effort; "": none; "reasoning": an object."""
    late_system: str = "system"
    """The role of system prompts after the history."""
    reply_after_results: bool = False
    """Whether it rejects a message of the user directly after results of tools."""
    cache: str = ""
    fill_message: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    fill_call: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    models: Mapping[str, ModelEntry] = field(default_factory=dict[str, ModelEntry])
    """By the beginnings of their names, each over the provider's own defaults, which are under ""."""

    def entry(self, model: str) -> ModelEntry:
        """Return the data of a model: the longest entry that its name begins with.

        It begins with one up to a "-", "@" or ":": `gpt-4.1-mini-2025-04-14` with `gpt-4.1-mini`,
        `gpt-4.15` with none.
        """
        return self.models.get(_longest(self.models, model), ModelEntry())

    def better_name(self, model: str) -> str:
        """Return the closest known model for an unknown name; empty without one."""
        names = [name for name in self.models if name]
        near = [] if _longest(names, model) else get_close_matches(model, names, n=1, cutoff=0.85)
        return near[0] if near else ""


@dataclass(frozen=True, kw_only=True)
class ChosenModel(ModelEntry):
    """A model with its provider: `name` is "provider/model", `model` the provider's own name for it."""

    name: str
    provider: Provider
    model: str


# All providers, and the choice of one by name.


class ModelsSettings(Settings):
    """Settings of models."""

    model: str | None = None
    """The model of agents without one of their own: `provider/model`, such as `ollama/qwen3`, or one of
    OpenAI. See docs/models.md."""
    models_file: Path | None = None
    """A file with providers and models of your own. Unset: `models.toml` in the working directory, if there
    is one. See docs/models.md#modelstoml."""

    @property
    def file(self) -> Path | None:
        """The file of the user; None without one."""
        usual = Path("models.toml")
        return self.models_file or (usual if usual.is_file() else None)


class UnknownModelError(StartError):
    """The provider of a requested model is unknown or not configured, or no model is set."""


_DEFAULT = "openai"
"""The provider of model names without one."""


@dataclass(frozen=True)
class Catalogue:
    """The providers by name. `missing` has the unset variables of those that are not configured.

    `date` is that of the shipped data: of prices and windows.
    """

    providers: Mapping[str, Provider]
    default_model: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    date: dt.date | None = None

    @classmethod
    def load(cls, file: Path | None, default_model: str | None, variables: Mapping[str, str]) -> "Catalogue":
        """Return the shipped catalogue, overridden field by field by the user's file.

        Raises:
            ModelsFileError: the file, or an address in a variable, is wrong.
        """
        shipped = read_file(Path("models.toml"), files(__package__ or "").joinpath("models.toml").read_text())
        own = _read_own(file) if file else ModelsFile()
        readers = [
            _ProviderReader(name, shipped, own, variables)
            for name in dict.fromkeys([*shipped.providers, *own.providers])
        ]
        _check_own(file, own, readers)
        providers = {reader.name: reader.provider() for reader in readers}
        missing = {reader.name: reader.missing[0] for reader in readers if reader.missing}
        return cls(providers, default_model, missing, shipped.date)

    def choose(self, name: str | None, agent_id: str) -> ChosenModel:
        """Return the model of a name, or the default model, if its provider is configured.

        Raises:
            UnknownModelError: as `find` does, or because a variable of its provider is not set.
        """
        chosen = self.find(name, agent_id)
        if problem := self.missing.get(chosen.provider.name):
            raise UnknownModelError(f"agent {agent_id!r} asks {chosen.name}, and {problem}")
        return chosen

    def find(self, name: str | None, agent_id: str) -> ChosenModel:
        """Return the model of a name, or the default model.

        Raises:
            UnknownModelError: no model is set, or the provider does not exist.
        """
        chosen = name or self.default_model
        if not chosen:
            raise UnknownModelError(
                f"agent {agent_id!r} names no model: set EVERLOOP_MODEL, or Agent(model=…)"
            )
        head, model = _parts(chosen)
        if not model:
            raise UnknownModelError(
                f"agent {agent_id!r} asks {chosen!r}, which names no model: "
                f"write provider/model, such as ollama/qwen3"
            )
        if head not in self.providers:
            near = get_close_matches(head, self.providers, n=1)
            better = f"{near[0]}/{model}" if near else f"{_DEFAULT}/{chosen}"
            known = ", ".join(self.providers)
            raise UnknownModelError(
                f"agent {agent_id!r} asks {chosen!r}, and no provider is called {head!r}: "
                f"did you mean {better}? There are {known}; models.toml (EVERLOOP_MODELS_FILE) may have more"
            )
        provider = self.providers[head]
        return ChosenModel(
            **vars(provider.entry(model)), name=f"{head}/{model}", provider=provider, model=model
        )


def _parts(name: str) -> tuple[str, str]:
    head, slash, model = name.partition("/")
    return (head, model) if slash else (_DEFAULT, name)


def _read_own(file: Path) -> ModelsFile:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelsFileError(
            f"{file}: cannot be read ({type(error).__name__}): check EVERLOOP_MODELS_FILE"
        ) from None
    return read_file(file, text)


def _check_own(file: Path | None, own: ModelsFile, readers: Sequence["_ProviderReader"]) -> None:
    providers = [reader.name for reader in readers]
    if homeless := next((reader.name for reader in readers if not reader.has_address), None):
        raise ModelsFileError(
            f"{file}: providers.{homeless}: base_url is missing; give an address, such as http://gpu:8000/v1"
        )
    for name in own.models:
        head, model = _parts(name)
        if head not in providers or not model:
            near = get_close_matches(head, providers, n=1)
            raise ModelsFileError(
                f"{file}: models.{name}: no provider is called {head!r}; {meant(near, providers)}"
            )


class _ProviderReader:
    """Builds a provider from its tables in the shipped and the own models file.

    `missing` collects the environment variables that it needs and that are not set.
    """

    def __init__(self, name: str, shipped: ModelsFile, own: ModelsFile, variables: Mapping[str, str]) -> None:
        self.name = name
        self.missing: list[str] = []
        self._variables = variables
        self._own, self._shipped = own, shipped
        self._table = {**_given(shipped.providers.get(name)), **_given(own.providers.get(name))}
        self._is_elsewhere = False

    @property
    def has_address(self) -> bool:
        """Whether an address is set, or not needed by the kind of an author."""
        is_own = ":" in self._table.get("kind", "")
        return is_own or bool(self._table.get("base_url") or self._table.get("base_url_variable"))

    def provider(self) -> Provider:
        """Return the provider. ModelsFileError: the address in a variable is invalid."""
        base_url = self._address()
        table = self._table
        is_shipped = not (self._is_elsewhere or self._own.providers.get(self.name))
        what = "the key" if is_shipped else "the key (to any word if it wants none)"
        key = self._variable(table.get("key_variable", ""), what)
        headers = {name: self._filled(name, value) for name, value in table.get("headers", {}).items()}
        made = {name: value for name, value in table.items() if name not in EntryTable.model_fields}
        made |= {"base_url": base_url, "headers": headers, "key": key}
        return Provider(self.name, **made, models=self._entries())

    def _address(self) -> str:
        variable, fixed = self._table.get("base_url_variable", ""), self._table.get("base_url", "")
        given = self._variables.get(variable, "").strip()
        if not given:
            return fixed or self._variable(variable, "the address")
        try:
            check_address(given)
        except ValueError as error:
            raise ModelsFileError(f"{variable}: {error}") from None
        if fixed and given.rstrip("/") != fixed.rstrip("/"):
            # A server at another address is another provider: the shipped data do not apply to it.
            self._is_elsewhere = True
            shipped = {"base_url_variable": variable, "key_variable": self._table.get("key_variable", "")}
            self._table = {**shipped, **_given(self._own.providers.get(self.name))}
        return given

    def _entries(self) -> dict[str, ModelEntry]:
        """Return the entries of models; fields that are not set come from the next shorter one."""
        tables: dict[str, dict[str, Any]] = {
            "": {k: v for k, v in self._table.items() if k in EntryTable.model_fields}
        }
        for file in (self._own,) if self._is_elsewhere else (self._shipped, self._own):
            for name, model in file.models.items():
                head, tail = _parts(name)
                if head == self.name:
                    tables[tail] = {**tables.get(tail, {}), **_given(model)}
        entries: dict[str, ModelEntry] = {}
        for name in sorted(tables, key=len):
            entries[name] = _over(tables[name], entries.get(_longest(entries, name), ModelEntry()))
        return entries

    def _filled(self, name: str, value: str) -> str:
        return self._variable(value[1:], f"the header {name}") if value.startswith("$") else value

    def _variable(self, name: str, what: str) -> str:
        value = self._variables.get(name, "").strip() if name else ""
        if name and not (value and value.isascii() and value.isprintable()):
            problem = "no printable ASCII" if value else "not set"
            self.missing.append(f"{name} is {problem}: set it to {what} of the provider {self.name!r}")
        return value


def _given(table: BaseModel | None) -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.model_fields_set} if table else {}


def _over(table: Mapping[str, Any], entry: ModelEntry) -> ModelEntry:
    laid = dict(table)
    if settings := laid.get("settings"):
        laid["settings"] = ModelSettings(**dict(settings.over(entry.settings).given()))
    return replace(entry, **laid | {"omit": entry.omit | laid.get("omit", frozenset())})
