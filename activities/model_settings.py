"""Which model provider to ask."""

from collections.abc import Iterable
from typing import Annotated

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout
from pydantic import AnyHttpUrl, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from everloop.activities.prices import Price, read_prices
from everloop.agents.agent import Agent
from everloop.runtime.bounded_answers import UNCOMPRESSED, bounding

NO_KEY = "none"
"""What the client is given where no agent asks a model: it insists on one."""

CONNECT_TIMEOUT = 5.0
"""Seconds until a connection to the provider must stand."""


MAX_STREAM = 256 * 1024 * 1024
"""Bytes of one streamed reply; a token takes some hundred."""


class ModelKeyError(Exception):
    """An agent asks a model, and there is no key for it; the message says which variable to set."""


class ModelSettings(BaseSettings):
    """Where the models are, read from the environment; an empty variable counts as not set.

    `OPENAI_API_KEY` is required where an agent asks a model. `OPENAI_BASE_URL`: any server that speaks Chat
    Completions (default: OpenAI). `EVERLOOP_MODEL`: the model of agents that name none.
    `EVERLOOP_MODEL_TIMEOUT`: how many seconds the provider may be silent, before its reply or within it
    (default 300). `EVERLOOP_PRICES`: what models cost, a JSON object that adds to the list in
    `everloop.activities.prices`.

    Raises:
        ValidationError: a variable is missing or wrong; it is named, its value is not shown.
    """

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, hide_input_in_errors=True)

    api_key: SecretStr = Field(default=SecretStr(""), validation_alias="OPENAI_API_KEY")
    base_url: AnyHttpUrl = Field(
        default=AnyHttpUrl("https://api.openai.com/v1"), validation_alias="OPENAI_BASE_URL"
    )
    model: str | None = Field(default=None, validation_alias="EVERLOOP_MODEL")
    timeout: float = Field(default=300, gt=0, validation_alias="EVERLOOP_MODEL_TIMEOUT")
    prices: Annotated[dict[str, Price], NoDecode] = Field(default={}, validation_alias="EVERLOOP_PRICES")

    def check_key(self, agents: Iterable[Agent]) -> None:
        """Find out that there is a key, if any of these agents asks a model.

        Raises:
            ModelKeyError: there is none.
        """
        if self.api_key.get_secret_value().strip():
            return
        if asking := next((agent for agent in agents if agent.asks_model), None):
            raise ModelKeyError(
                f"OPENAI_API_KEY is not set, and the agent {asking.id!r} asks a model: set it to the key of "
                "the model provider (to any word if the server at OPENAI_BASE_URL wants none)"
            )

    @field_validator("prices", mode="before")
    @classmethod
    def _are_prices(cls, prices: object) -> object:
        if not isinstance(prices, str):
            return prices
        try:
            return read_prices(prices)
        except ValueError as error:
            raise ValueError(f"EVERLOOP_PRICES: {error}") from None


def make_openai_client(settings: ModelSettings) -> AsyncOpenAI:
    """Return the client of a process; close it at the end. It does not retry: Temporal does."""
    return AsyncOpenAI(
        api_key=settings.api_key.get_secret_value() or NO_KEY,  # without one it reads the environment itself
        base_url=str(settings.base_url),
        timeout=Timeout(settings.timeout, connect=CONNECT_TIMEOUT),
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(
            headers=UNCOMPRESSED, event_hooks={"response": [bounding(total=MAX_STREAM)]}
        ),
    )
