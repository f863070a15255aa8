"""The providers of models, and what is known of their models. Nothing in here loads a client."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from everloop.workflows.contract.settings import ModelSettings


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens. Cached ones without a price of their own cost as much as others."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True)
class ModelEntry:
    """What is known of a model at its provider; None: nobody knows."""

    window: int | None = None
    price: Price | None = None
    takes: tuple[str, ...] | None = None
    omit: frozenset[str] = frozenset()
    """Fields that it refuses: of the request, and of messages that came from it."""
    starts_thinking: bool = False
    """Whether its template writes the first <think> itself: a reply begins as a thought."""
    output: tuple[str, ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)


@dataclass(frozen=True)
class Provider:
    """Where models are, and how they want to be asked. Its repr shows no key."""

    name: str
    kind: str = "chat"
    base_url: str = ""
    base_url_variable: str = ""
    """The variable that names the address, for texts."""
    key: str = field(default="", repr=False)
    key_variable: str = ""
    """The variable that holds the key, for texts."""
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    query: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_tokens_field: str = "max_tokens"
    effort: str = "reasoning_effort"
    """The field for it; "": none; "reasoning": an object."""
    late_system: str = "system"
    """The role of system prompts behind the history."""
    reply_after_results: bool = False
    """Whether it refuses a message of the user right behind results of tools."""
    cache: str = ""
    fill_message: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    fill_call: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    models: Mapping[str, ModelEntry] = field(default_factory=dict[str, ModelEntry])
    """By the beginnings of their names, each over what the provider says itself, which stands under ""."""

    def entry(self, model: str) -> ModelEntry:
        """Return what is known of a model: the longest entry that its name begins with."""
        known = [name for name in self.models if model.startswith(name)]
        return self.models[max(known, key=len)] if known else ModelEntry()


@dataclass(frozen=True)
class ChosenModel:
    """A model that is asked: `name` is "provider/model", `model` the provider's own name for it."""

    name: str
    provider: Provider
    model: str
    price: Price | None = None
    window: int | None = None
    takes: tuple[str, ...] | None = None
    starts_thinking: bool = False
    settings: ModelSettings = field(default_factory=ModelSettings)
    rungs: tuple[str, ...] = ()
