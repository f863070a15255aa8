"""The provider of models: which one is asked, how its answer is read, what it costs."""

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Annotated, cast

import httpx2
from openai import AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient, Timeout
from openai.types.chat import ChatCompletionChunk
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue
from pydantic import AnyHttpUrl, Field, SecretStr, field_validator
from pydantic_settings import NoDecode
from temporalio.exceptions import ApplicationError

from everloop.activities.heartbeat import Heartbeat
from everloop.activities.model.failures import PROVIDER_ERRORS, kind_of, provider_failure
from everloop.activities.model.prices import LIST_PRICES, Price, Prices, read_prices
from everloop.activities.model.reply import Delta, IncompleteReplyError, ReplyAssembler, UnreadableStreamError
from everloop.activities.model.request import ChatRequest
from everloop.activities.spans import of_task, record_completion, record_prompt
from everloop.activities.telemetry import error_type, record_usage, timed_model_call
from everloop.agents.agent import Agent
from everloop.runtime.bounded_answers import UNCOMPRESSED, bounding
from everloop.runtime.settings import Settings
from everloop.runtime.telemetry.instruments import span_without_content
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import AssistantMessage, Usage
from everloop.workflows.contract.tasks import TaskRef

# Which model provider to ask.

NO_KEY = "none"
"""What the client is given where no agent asks a model: it insists on one."""

CONNECT_TIMEOUT = 5.0
"""Seconds until a connection to the provider must stand."""


MAX_STREAM = 256 * 1024 * 1024
"""Bytes of one streamed reply; a token takes some hundred."""


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


# The tokens of a model call whose provider did not count them.

_CHARACTERS = 4
"""Of one token, as OpenAI says of English text."""

FILE_TOKENS = 1000
"""Of a file that the model gets as it is: about a page, or an image of middling size."""


def estimated_usage(request: ChatRequest, reply: AssistantMessage) -> Usage:
    """Return about how many tokens the messages of a request and the reply to it have, reasoning included."""
    sent: list[object] = []
    files = 0
    for message in request["messages"]:
        content = message.get("content")
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


_PORTS = {"http": 80, "https": 443}

_SAYS_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_LONGEST_MARK = 13


@dataclass(frozen=True)
class ModelProvider:
    """Any provider that speaks Chat Completions.

    `default_model` serves agents that name none. A reply takes at most `longest_reply` (default 25 minutes).
    `captures_content`: spans have prompts and replies on them (default: no).
    """

    client: AsyncOpenAI
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

    def priced(self, request: ChatRequest, reply: AssistantMessage) -> AssistantMessage:
        """Return the reply with its cost. The price is that of the model asked for.

        Tokens that the provider did not count are estimated: limits shall hold with any provider.
        """
        tokens = estimated_usage(request, reply) if reply.usage == Usage() else reply.usage
        return reply.model_copy(update={"usage": self.prices.add_cost(request["model"], tokens)})

    @asynccontextmanager
    async def stream(
        self, task: TaskRef, request: ChatRequest, assembler: ReplyAssembler, *, agent_name: str = ""
    ) -> AsyncGenerator[AsyncIterable[ChatCompletionChunk]]:
        """Ask, and yield the answer from its beginning. Leaving hangs up, which ends the billing.

        The assembler has taken the whole answer when the block ends without an error. `agent_name` is what
        the span calls the agent.

        Raises:
            IncompleteReplyError: it took longer than `longest_reply`.
        """
        model = request["model"]
        with (
            self._span(task, request, agent_name) as span,
            timed_model_call(task.agent_id, model) as record_first_chunk,
        ):
            async with (
                finish_within(self.longest_reply.total_seconds()),
                await self.client.chat.completions.create(
                    model=model,
                    messages=(),
                    stream=True,
                    stream_options={"include_usage": True},
                    # The client would walk through each message of its own argument (0.1 ms each, measured).
                    extra_body=request,
                ) as stream,
            ):
                yield _chunks(stream, assembler, record_first_chunk)
            self._record_reply(span, assembler)
            record_usage(task.agent_id, model, self.priced(request, assembler.reply).usage)

    @contextmanager
    def _span(self, task: TaskRef, request: ChatRequest, agent_name: str) -> Generator[Span]:
        """Trace one call (OpenTelemetry semantic conventions for generative AI).

        An exception is recorded by its kind, not by its message; the address without secrets of its URL.
        """
        url = self.client.base_url
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": request["model"],
            "gen_ai.request.stream": True,
            "gen_ai.output.type": "json" if "response_format" in request else "text",
            "server.address": url.host,
            "server.port": url.port or _PORTS.get(url.scheme, 0),
            **of_task(task, agent_name),
        }
        name = f"chat {request['model']}"
        with span_without_content(name, SpanKind.CLIENT, attributes, error_type) as span:
            if self.captures_content:
                record_prompt(span, request["messages"])
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


class _Watched(httpx2.AsyncByteStream):
    """Hands on the body of an answer, and notices the event that the client keeps to itself.

    Answers are not compressed (`everloop.runtime.bounded_answers`).
    """

    def __init__(self, body: httpx2.AsyncByteStream, assembler: ReplyAssembler) -> None:
        self._body = body
        self._assembler = assembler

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        end = b"\n"
        async for piece in self._body:
            end += piece
            self._assembler.is_done |= bool(_SAYS_DONE.search(end))
            end = end[-_LONGEST_MARK:]
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


async def _chunks(
    stream: AsyncStream[ChatCompletionChunk], assembler: ReplyAssembler, record_first: Callable[[], None]
) -> AsyncGenerator[ChatCompletionChunk]:
    """Yield the chunks of an answer; one that is no stream, though a stream was asked for, is one chunk."""
    if stream.response.headers.get("content-type", "").startswith("application/json"):
        chunk = _as_chunk(await stream.response.aread())
        record_first()
        yield chunk
        assembler.is_done = True
        return
    body = cast("httpx2.AsyncByteStream", stream.response.stream)  # the client is asynchronous
    stream.response.stream = _Watched(body, assembler)
    is_first = True
    async for chunk in stream:
        if is_first:
            record_first()
        is_first = False
        yield chunk


def _as_chunk(body: bytes) -> ChatCompletionChunk:
    """Return a whole completion as if it had been streamed at once.

    Raises:
        UnreadableStreamError: it is none.
    """
    try:
        completion = json.loads(body)
        for choice in completion["choices"]:
            choice["delta"] = choice.pop("message")
            for index, call in enumerate(choice["delta"].get("tool_calls") or ()):
                call["index"] = index
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableStreamError(
            "the provider answered with JSON that is no chat completion, where a stream was asked for: "
            "check OPENAI_BASE_URL"
        ) from None
    return ChatCompletionChunk.construct(None, **completion)


@asynccontextmanager
async def finish_within(seconds: float) -> AsyncGenerator[None]:
    """Let the model write for so long.

    Raises:
        IncompleteReplyError: it wrote for longer.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise IncompleteReplyError(f"the model did not finish its reply within {seconds:g} s") from None


async def read_stream(
    stream: AsyncIterable[ChatCompletionChunk],
    assembler: ReplyAssembler,
    add: Callable[[Iterable[Delta]], None],
) -> None:
    """Read the whole stream; `add` gets the deltas as they come.

    Raises:
        UnreadableStreamError, IncompleteReplyError: it is no stream, or was cut.
    """
    try:
        async for chunk in stream:
            add(assembler.feed(chunk))
        add(assembler.close())
        _ = assembler.reply  # what is no text shows here
    # No JSON, JSON of another shape, or JSON that is nested too deep.
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        problem = type(error).__name__
        raise UnreadableStreamError(
            f"the provider's answer is no Chat Completions stream ({problem}): check OPENAI_BASE_URL"
        ) from None


@contextmanager
def translate_provider_errors(model: str, heartbeat: Heartbeat) -> Generator[None]:
    """Count a failure of the provider and raise what it means."""
    try:
        yield
    except PROVIDER_ERRORS as error:
        chance = random.random()  # noqa: S311 -- it spreads retries, it keeps no secret
        # Its cause would take the provider's text into the workflow history.
        counted = heartbeat.count_failure(kind_of(error))
        raise provider_failure(error, model, counted, chance) from None
