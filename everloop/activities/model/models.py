"""Chooses the model of a call, sends the request through the provider's gate, and prices the reply."""

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil
from typing import Any, cast

import structlog
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue
from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.model.clients import Clients, answer_of_tool, unpriced
from everloop.activities.model.reply import THINKING_TAGS, ReplyAssembler, VisibleDelta
from everloop.activities.telemetry import (
    error_type,
    of_task,
    record_completion,
    record_held_back,
    record_prompt,
    record_usage,
    timed_model_call,
)
from everloop.models.catalogue import Catalogue, ChosenModel, Provider, UnknownModelError
from everloop.models.interface import (
    SILENCE,
    CallDelta,
    Delta,
    Model,
    ModelDownError,
    ModelError,
    ModelRequest,
    OutputUnsupportedError,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
    UnreadableReplyError,
)
from everloop.runtime.telemetry.instruments import server_of, span_without_content
from everloop.runtime.telemetry.logs import exception_fields
from everloop.runtime.user_code import error_kind, translate_base_exceptions
from everloop.stores.providers import HeldBackError, ProviderCall, ProviderGates
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import AssistantMessage, Usage
from everloop.workflows.contract.tasks import TaskRef

_log = structlog.get_logger()

# Estimates of the tokens of a model call whose provider did not count them.

_CHARACTERS = 4
"""Characters per token (OpenAI, for English text)."""

FILE_TOKENS = 1000
"""Tokens per file that the model gets unchanged: about a page, or an image of medium size."""


_REPLY_TOKENS = 1000
"""Tokens of a future reply, unless settings limit them."""


def estimated_usage(request: ModelRequest, reply: AssistantMessage) -> Usage:
    """Return an estimate of the tokens of a request's messages and of the reply, including reasoning."""
    sent: list[object] = []
    files = 0
    for message in request.messages:
        content = cast("str | list[dict[str, JsonValue]] | None", message.get("content"))
        if isinstance(content, list):
            texts = [part for part in content if part["type"] == "text"]
            files += len(content) - len(texts)
            message = {**message, "content": texts}  # noqa: PLW2901 -- only its texts are counted
        sent.append(message)
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
"""Time limit of one reply. Together with the time limits of plugins it is less than the 30 minutes after
which Temporal ends the activity. Such an end would not be counted: the call would be repeated, and paid for,
without limit."""


_Object = dict[str, Any]


def returned(
    messages: Sequence[Mapping[str, JsonValue]], source: str, provider: Provider
) -> tuple[Mapping[str, JsonValue], ...]:
    """Return messages with the opaque fields for `source`, the model of the call.

    Fields of other models are removed. Then the provider's own default fields are added where they are
    missing: to each assistant message, and to calls if none of them has the field.
    """
    return tuple(_returned(one, source, provider) if one["role"] == "assistant" else one for one in messages)


def _returned(message: Mapping[str, JsonValue], source: str, provider: Provider) -> Mapping[str, JsonValue]:
    made = _bare(message)
    opaque = cast("_Object", message.get("opaque") or {})
    is_ours = opaque.get("source") == source
    opaque_fields: _Object = opaque["fields"] if is_ours else {}
    calls = cast("list[_Object]", made.get("tool_calls") or [])
    fields_of_calls: list[_Object] = [call.get("opaque") or {} if is_ours else {} for call in calls]
    names = {name for fields in fields_of_calls for name in fields}
    fill = {name: value for name, value in provider.fill_call.items() if name not in names}
    if calls:
        pairs = zip(calls, fields_of_calls, strict=True)
        made["tool_calls"] = [{**_bare(call), "opaque": {**fill, **fields}} for call, fields in pairs]
    return {**made, "opaque": {"source": source, "fields": {**provider.fill_message, **opaque_fields}}}


def _bare(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "opaque"}


@dataclass(frozen=True)
class Models:
    """The models; all requests to models go through it.

    A reply takes at most `longest_reply` (default 25 minutes). `captures_content`: spans contain prompts and
    replies (default: no).
    """

    catalogue: Catalogue
    clients: Clients = field(default_factory=Clients)
    gates: ProviderGates | None = None
    longest_reply: timedelta = LONGEST_REPLY
    captures_content: bool = False

    def choose(self, name: str | None, agent_id: str) -> ChosenModel:
        """Return the model of a call.

        Raises:
            ApplicationError: `ModelRefused`: there is none.
        """
        try:
            return self.catalogue.choose(name, agent_id)
        except UnknownModelError as error:
            raise ApplicationError(str(error), type=failures.MODEL_REFUSED, non_retryable=True) from None

    def require_price(self, chosen: ChosenModel, agent_id: str) -> None:
        """Check that the price of a model is known, also of one that a hook has chosen.

        Raises:
            ApplicationError: `PriceUnknown`.
        """
        if not chosen.price:
            raise ApplicationError(
                unpriced(chosen, agent_id), type=failures.PRICE_UNKNOWN, non_retryable=True
            )

    def priced(self, request: ModelRequest, reply: AssistantMessage) -> AssistantMessage:
        """Return the reply with its source and its cost, None if that is unknown.

        The price is that of the requested model. Tokens that the provider did not count are estimated, so
        that limits hold with any provider.
        """
        tokens = estimated_usage(request, reply) if reply.usage == Usage() else reply.usage
        chosen = self.catalogue.find(request.model, "")
        cost = chosen.price.cost(tokens) if chosen.price else None
        usage = tokens.model_copy(update={"cost": cost})
        return reply.model_copy(update={"usage": usage, "source": chosen.name})

    def assembler(
        self, request: ModelRequest, position: int = 0, drafted: AbstractSet[str] = frozenset()
    ) -> ReplyAssembler:
        """Return the assembler for the reply to a request; see `ReplyAssembler`."""
        chosen = self.catalogue.find(request.model, "")
        tags = request.settings.over(chosen.settings).thinking_tags
        return ReplyAssembler(
            position,
            drafted,
            tags=THINKING_TAGS if tags is None else tags,
            starts_thinking=chosen.starts_thinking,
        )

    @asynccontextmanager
    async def stream(
        self, task: TaskRef, request: ModelRequest, assembler: ReplyAssembler, *, agent_name: str = ""
    ) -> AsyncGenerator[AsyncIterable[Delta]]:
        """Send the request and yield the answer from its beginning. Leaving hangs up, which ends the billing.

        The assembler has the complete answer when the block ends without an error. `agent_name` is the
        agent's name on the span.

        Raises:
            ModelError: There is no reply, or it took longer than `longest_reply`.
            HeldBackError: The model may not be called now.
        """
        chosen = self.choose(request.model, task.agent_id)
        sent = replace(
            request,
            model=chosen.name,
            settings=request.settings.over(chosen.settings),
            messages=returned(request.messages, chosen.name, chosen.provider),
        )
        async with self._gate(task, chosen, sent) as passage:
            with (
                self._span(task, sent, chosen, agent_name) as span,
                timed_model_call(task.agent_id, chosen.name) as record_first_chunk,
            ):

                def note_first() -> None:
                    passage.outcome = "answered"
                    record_first_chunk()

                async with (
                    finish_within(self.longest_reply.total_seconds()),
                    aclosing(self._reply(chosen, sent)) as deltas,
                ):
                    yield _timed(deltas, note_first)
                reply = assembler.reply
                self._record_reply(span, reply, assembler.response_id)
            usage = self.priced(sent, reply).usage
            passage.used = usage.input_tokens + usage.output_tokens
            record_usage(task.agent_id, chosen.name, usage)

    @asynccontextmanager
    async def _gate(
        self, task: TaskRef, chosen: ChosenModel, request: ModelRequest
    ) -> AsyncGenerator[ProviderCall]:
        # An activity makes one call at a time, and all its attempts share its id.
        call = f"{task.task_id} {task.run_id} {activity.info().activity_id}"
        if not self.gates:
            yield ProviderCall(chosen, call, 0)
            return
        tokens = 0
        if chosen.provider.tokens_per_minute:
            written = request.settings.max_tokens or _REPLY_TOKENS
            tokens = estimated_usage(request, AssistantMessage()).input_tokens + written
        try:
            async with self.gates.hold(chosen, call, tokens) as passage:
                yield passage
        except HeldBackError as error:
            record_held_back(error.provider, error.why)
            raise

    async def _reply(self, chosen: ChosenModel, request: ModelRequest) -> AsyncGenerator[Delta]:
        """Yield the reply; data are requested by the best method that the provider accepts."""
        with _failing_by_kind(chosen.provider.name):
            model = self.clients.of(chosen.provider)
            for sent in (means := self.clients.by_each_means(chosen, request)):
                try:
                    async with aclosing(_deltas(model, sent, chosen)) as deltas:
                        async for delta in deltas:
                            yield delta
                except OutputUnsupportedError as error:
                    if sent is means[-1]:
                        raise
                    self.clients.refuse(chosen, request, sent)
                    _log.info("model takes no such output", model=chosen.name, codes=error.codes)
                else:
                    return

    @contextmanager
    def _span(
        self, task: TaskRef, request: ModelRequest, chosen: ChosenModel, agent_name: str
    ) -> Generator[Span]:
        """Trace one call (OpenTelemetry semantic conventions for generative AI).

        An exception is recorded by its kind, without its message; the address without the secrets of its URL.
        """
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": chosen.provider.name,
            "gen_ai.request.model": request.model,
            "gen_ai.request.stream": True,
            "gen_ai.output.type": "json" if request.output else "text",
            **server_of(chosen.provider.base_url),
            **of_task(task, agent_name),
        }
        name = f"chat {request.model}"
        with span_without_content(name, SpanKind.CLIENT, attributes, error_type) as span:
            if self.captures_content:
                record_prompt(span, request.messages)
            yield span

    def _record_reply(self, span: Span, reply: AssistantMessage, response_id: str) -> None:
        span.set_attributes(
            {
                "gen_ai.response.id": response_id,
                "gen_ai.response.model": reply.model,
                "gen_ai.response.finish_reasons": [reply.finish_reason],
                "gen_ai.usage.input_tokens": reply.usage.input_tokens,
                "gen_ai.usage.output_tokens": reply.usage.output_tokens,
            }
        )
        if self.captures_content:
            record_completion(span, reply)


@contextmanager
def _failing_by_kind(provider: str) -> Generator[None]:
    """Count any exception of a client, also of an author's, as a missing reply, so that retries end.

    Its text may quote the prompt, or a key.
    """
    try:
        with translate_base_exceptions():
            yield
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 -- it may be the user's code
        _log.warning("client of a provider failed", provider=provider, **exception_fields(error))
        failed = f"the client of the provider {provider!r} failed ({error_kind(error)})"
        raise UnreadableReplyError(f"{failed}: check its key, its headers and its settings") from None


async def _deltas(model: Model, request: ModelRequest, chosen: ChosenModel) -> AsyncGenerator[Delta]:
    """Yield the deltas of one reply as they arrive.

    Raises:
        ModelDownError: No delta arrived for too long. Keep-alive messages do not count.
    """
    by_tool = request.output is not None and request.output.by == "tool"
    async with (
        aclosing(model.stream(request, chosen.model)) as stream,
        aclosing(_heard(stream, request.settings, chosen.provider.name)) as heard,
        aclosing(answer_of_tool(heard) if by_tool else heard) as deltas,
    ):
        async for delta in deltas:
            yield delta


async def _heard(
    stream: AsyncIterator[Delta], settings: ModelSettings, provider: str
) -> AsyncGenerator[Delta]:
    longest, what = settings.first_token or SILENCE, "before its reply"
    while True:
        limit = asyncio.timeout(longest.total_seconds())
        try:
            async with limit:
                delta = await anext(stream, None)
        except TimeoutError:
            if not limit.expired():
                raise
            waited = f"{longest.total_seconds():g} s"
            raise ModelDownError(f"the provider {provider!r} was silent for {waited} {what}") from None
        if delta is None:
            return
        if not all(isinstance(text, str) for text in _texts_of(delta)):
            raise UnreadableReplyError(f"the provider {provider!r} wrote something else than text")
        yield delta
        longest, what = settings.between_tokens or SILENCE, "within its reply"


def _texts_of(delta: Delta) -> Sequence[object]:
    match delta:
        case TextDelta(text) | ThoughtDelta(text) | RefusalDelta(text):
            return (text,)
        case CallDelta(_, name, arguments):
            return name, arguments
        case _:
            return ()


async def _timed(deltas: AsyncIterable[Delta], record_first: Callable[[], None]) -> AsyncGenerator[Delta]:
    is_first = True
    async for delta in deltas:
        if is_first:
            record_first()
        is_first = False
        yield delta


@asynccontextmanager
async def finish_within(seconds: float) -> AsyncGenerator[None]:
    """Limit the time of a reply.

    Raises:
        ModelDownError: The time limit was exceeded.
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
    stream: AsyncIterable[Delta], assembler: ReplyAssembler, add: Callable[[Iterable[VisibleDelta]], None]
) -> None:
    """Read the complete stream; `add` gets the visible deltas as they arrive.

    Raises:
        ModelError: It is not a reply, or was cut.
    """
    async for delta in stream:
        add(assembler.feed(delta))
    add(assembler.close())
