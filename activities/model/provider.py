"""The provider of models: which one is asked, how its answer is read, what it costs."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from typing import Annotated, Any, cast

import httpx2
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue
from pydantic import AnyHttpUrl, Field, JsonValue, SecretStr, field_validator
from pydantic_settings import NoDecode
from temporalio.exceptions import ApplicationError

from everloop.activities.model.prices import LIST_PRICES, Price, Prices, read_prices
from everloop.activities.model.reply import THINKING_TAGS, ReplyAssembler, Shown
from everloop.activities.spans import of_task, record_completion, record_prompt
from everloop.activities.telemetry import error_type, record_usage, timed_model_call
from everloop.agents.agent import Agent
from everloop.models.catalogue import ModelEntry, Provider
from everloop.models.chat import Chat
from everloop.models.interface import Delta, ModelDownError, ModelRequest
from everloop.models.responses import Responses
from everloop.runtime.settings import Settings
from everloop.runtime.telemetry.instruments import span_without_content
from everloop.workflows.contract import failures
from everloop.workflows.contract import settings as contract
from everloop.workflows.contract.messages import AssistantMessage, Usage
from everloop.workflows.contract.tasks import TaskRef

# Which model provider to ask.


class ModelKeyError(Exception):
    """An agent asks a model, and there is no key for it; the message says which variable to set."""


class ModelSettings(Settings):
    """Where the models are, read from the environment; an empty variable counts as not set.

    `OPENAI_API_KEY` is required where an agent asks a model. `OPENAI_BASE_URL`: any server that speaks Chat
    Completions (default: OpenAI). `EVERLOOP_MODEL`: the model of agents that name none.
    `EVERLOOP_MODEL_TIMEOUT`: how many seconds the provider may be silent, before its reply or within it
    (default 300). `EVERLOOP_PRICES`: what models cost, a JSON object that adds to the list in
    `everloop.activities.model.prices`.

    Raises:
        ValidationError: a variable is missing or wrong; it is named, its value is not shown.
    """

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
        return read_prices(prices) if isinstance(prices, str) else prices


@asynccontextmanager
async def opened_chat(settings: ModelSettings) -> AsyncGenerator[Chat]:
    """Yield the model of a process."""
    silence = timedelta(seconds=settings.timeout)
    entry = ModelEntry(settings=contract.ModelSettings(first_token=silence, between_tokens=silence))
    chat = Chat(
        Provider(
            "openai",
            base_url=str(settings.base_url),
            base_url_variable="OPENAI_BASE_URL",
            key=settings.api_key.get_secret_value(),
            key_variable="OPENAI_API_KEY",
            max_tokens_field="max_completion_tokens",
            models={"": entry},
        )
    )
    try:
        yield chat
    finally:
        await chat.close()


# The tokens of a model call whose provider did not count them.

_CHARACTERS = 4
"""Of one token, as OpenAI says of English text."""

FILE_TOKENS = 1000
"""Of a file that the model gets as it is: about a page, or an image of middling size."""


def estimated_usage(request: ModelRequest, reply: AssistantMessage) -> Usage:
    """Return about how many tokens the messages of a request and the reply to it have, reasoning included."""
    sent: list[object] = []
    files = 0
    for message in request.messages:
        content = cast("str | list[dict[str, JsonValue]] | None", message.get("content"))
        texts = [part for part in content if part["type"] == "text"] if isinstance(content, list) else content
        if isinstance(content, list) and isinstance(texts, list):
            files += len(content) - len(texts)
        sent.append({**message, "content": texts})
    written = [reply.text, reply.reasoning]
    for call in reply.tool_calls:
        written += call.name, call.arguments
    return Usage(
        input_tokens=_tokens(len(json.dumps(sent, ensure_ascii=False))) + FILE_TOKENS * files,
        output_tokens=_tokens(sum(map(len, written))),
    )


def _tokens(characters: int) -> int:
    return ceil(characters / _CHARACTERS)


LONGEST_REPLY = timedelta(minutes=25)
"""How long a model may write one reply. With the time that plugins may take it is less than the 30 minutes
after which Temporal ends the activity, which nobody could count: the call would be asked, and paid, without
end."""


_Object = dict[str, Any]

_PORTS = {"http": 80, "https": 443}


def returned(
    messages: Sequence[Mapping[str, JsonValue]], source: str, provider: Provider
) -> tuple[Mapping[str, JsonValue], ...]:
    """Return messages with what goes back to `source`, the model that is asked.

    What came from another model is cut out. Then the provider's own fields are put where there are none: what
    it wants with each assistant message, and with calls of which none has what it wants.
    """
    return tuple(_returned(one, source, provider) if one["role"] == "assistant" else one for one in messages)


def _returned(message: Mapping[str, JsonValue], source: str, provider: Provider) -> Mapping[str, JsonValue]:
    made = _bare(message)
    opaque = cast("_Object", message.get("opaque") or {})
    is_ours = opaque.get("source") == source
    kept: _Object = opaque["fields"] if is_ours else {}
    calls = cast("list[_Object]", made.get("tool_calls") or [])
    kept_of_calls: list[_Object] = [call.get("opaque") or {} if is_ours else {} for call in calls]
    known = {name for fields in kept_of_calls for name in fields}
    fill = {name: value for name, value in provider.fill_call.items() if name not in known}
    if calls:
        pairs = zip(calls, kept_of_calls, strict=True)
        made["tool_calls"] = [{**_bare(call), "opaque": {**fill, **fields}} for call, fields in pairs]
    return {**made, "opaque": {"source": source, "fields": {**provider.fill_message, **kept}}}


def _bare(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "opaque"}


@dataclass(frozen=True)
class ModelProvider:
    """A provider of models.

    `default_model` serves agents that name none. A reply takes at most `longest_reply` (default 25 minutes).
    `captures_content`: spans have prompts and replies on them (default: no).
    """

    chat: Chat | Responses
    default_model: str | None
    prices: Prices = LIST_PRICES
    longest_reply: timedelta = LONGEST_REPLY
    captures_content: bool = False

    def choose(self, model: str | None, agent_id: str) -> str:
        """Return the model to ask.

        Raises:
            ApplicationError: `ModelRefused`: nobody names one.
        """
        if chosen := model or self.default_model:
            return chosen
        raise ApplicationError(
            f"agent {agent_id!r} names no model: set EVERLOOP_MODEL, or Agent(model=…)",
            type=failures.MODEL_REFUSED,
            non_retryable=True,
        )

    def require_price(self, model: str) -> None:
        """Pass if it is known what the model costs.

        Raises:
            ApplicationError: `PriceUnknown`.
        """
        if not self.prices.find(model):
            raise ApplicationError(
                f"the agent limits its cost, and the price of model {model!r} is not known: "
                "set EVERLOOP_PRICES",
                type=failures.PRICE_UNKNOWN,
                non_retryable=True,
            )

    def priced(self, request: ModelRequest, reply: AssistantMessage) -> AssistantMessage:
        """Return the reply with its cost. The price is that of the model asked for.

        Tokens that the provider did not count are estimated: limits shall hold with any provider.
        """
        tokens = estimated_usage(request, reply) if reply.usage == Usage() else reply.usage
        return reply.model_copy(
            update={"usage": self.prices.add_cost(request.model, tokens), "source": request.model}
        )

    def assembler(
        self, request: ModelRequest, position: int = 0, drafted: AbstractSet[str] = frozenset()
    ) -> ReplyAssembler:
        """Return what puts the reply to a request together; see `ReplyAssembler`."""
        entry = self.chat.provider.entry(request.model)
        tags = request.settings.over(entry.settings).thinking_tags
        return ReplyAssembler(
            position,
            drafted,
            tags=THINKING_TAGS if tags is None else tags,
            starts_thinking=entry.starts_thinking,
        )

    @asynccontextmanager
    async def stream(
        self, task: TaskRef, request: ModelRequest, assembler: ReplyAssembler, *, agent_name: str = ""
    ) -> AsyncGenerator[AsyncIterable[Delta]]:
        """Ask, and yield the answer from its beginning. Leaving hangs up, which ends the billing.

        The assembler has taken the whole answer when the block ends without an error. `agent_name` is what
        the span calls the agent.

        Raises:
            ModelError: there is no reply; also where it took longer than `longest_reply`.
        """
        model, entry = request.model, self.chat.provider.entry(request.model)
        sent = replace(
            request,
            settings=request.settings.over(entry.settings),
            messages=returned(request.messages, model, self.chat.provider),
        )
        with (
            self._span(task, request, agent_name) as span,
            timed_model_call(task.agent_id, model) as record_first_chunk,
        ):
            async with (
                finish_within(self.longest_reply.total_seconds()),
                aclosing(self.chat.stream(sent, model)) as deltas,
            ):
                yield _timed(deltas, record_first_chunk)
            self._record_reply(span, assembler)
            record_usage(task.agent_id, model, self.priced(request, assembler.reply).usage)

    @contextmanager
    def _span(self, task: TaskRef, request: ModelRequest, agent_name: str) -> Generator[Span]:
        """Trace one call (OpenTelemetry semantic conventions for generative AI).

        An exception is recorded by its kind, not by its message; the address without secrets of its URL.
        """
        url = httpx2.URL(self.chat.provider.base_url)
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self.chat.provider.name,
            "gen_ai.request.model": request.model,
            "gen_ai.request.stream": True,
            "gen_ai.output.type": "json" if request.output else "text",
            "server.address": url.host,
            "server.port": url.port or _PORTS.get(url.scheme, 0),
            **of_task(task, agent_name),
        }
        name = f"chat {request.model}"
        with span_without_content(name, SpanKind.CLIENT, attributes, error_type) as span:
            if self.captures_content:
                record_prompt(span, request.messages)
            yield span

    def _record_reply(self, span: Span, assembler: ReplyAssembler) -> None:
        reply = assembler.reply
        span.set_attributes(
            {
                "gen_ai.response.id": assembler.response_id,
                "gen_ai.response.model": reply.model,
                "gen_ai.response.finish_reasons": [reply.finish_reason],
                "gen_ai.usage.input_tokens": reply.usage.input_tokens,
                "gen_ai.usage.output_tokens": reply.usage.output_tokens,
            }
        )
        if self.captures_content:
            record_completion(span, reply)


async def _timed(deltas: AsyncIterable[Delta], record_first: Callable[[], None]) -> AsyncGenerator[Delta]:
    is_first = True
    async for delta in deltas:
        if is_first:
            record_first()
        is_first = False
        yield delta


@asynccontextmanager
async def finish_within(seconds: float) -> AsyncGenerator[None]:
    """Let the model write for so long.

    Raises:
        ModelDownError: it wrote for longer.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise ModelDownError(f"the model did not finish its reply within {seconds:g} s") from None


async def read_stream(
    stream: AsyncIterable[Delta], assembler: ReplyAssembler, add: Callable[[Iterable[Shown]], None]
) -> None:
    """Read the whole stream; `add` gets what is shown of it as it comes.

    Raises:
        ModelError: it is no reply, or was cut.
    """
    async for delta in stream:
        add(assembler.feed(delta))
    add(assembler.close())
