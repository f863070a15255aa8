"""Requests to providers with OpenAI's protocols, by OpenAI's SDK, and the common parts of these protocols."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, ClassVar

import httpx2
from openai import AsyncOpenAI, AsyncStream, Omit

from everloop.models.catalogue import Provider
from everloop.models.events import DONE, Object, read_events, read_json
from everloop.models.interface import SILENCE, Delta, Ended, Model, ModelRequest
from everloop.models.provider_failures import Failures, error_in
from everloop.runtime.outbound.bounds import AnswerTooLargeError
from everloop.runtime.outbound.policy import is_loopback
from everloop.runtime.outbound.response_bounds import UNCOMPRESSED, bounding
from everloop.workflows.contract.agent_settings import TOOL_CHOICES, ModelSettings
from everloop.workflows.contract.messages import Usage

Message = Mapping[str, Any]
"""In the form of Chat Completions."""

MAX_STREAM = 256 * 1024 * 1024
"""Bytes of one streamed reply; a token takes some hundred."""

CONNECT_TIMEOUT = 5.0
"""Seconds until a connection to the provider must stand."""

_POOL = httpx2.Limits(max_connections=None, max_keepalive_connections=200, keepalive_expiry=30)
"""Temporal limits concurrent calls. A handshake takes as long as some replies: connections outlive a tool
between two calls, but are closed before the server closes them, usually after a minute."""


class ProviderClient(AsyncOpenAI):
    """The SDK's client of one provider; close it at the end.

    It sends the headers of the provider's entry alone. The SDK would send every provider the account, the
    administrator's key and the headers that variables name for OpenAI, and say what machine this is.
    """

    def __init__(self, provider: Provider) -> None:
        bearer = "Bearer " if provider.key_header.lower() == "authorization" else ""
        key = {provider.key_header: bearer + provider.key} if provider.key else {}
        json_only = {"Accept": "application/json", "Content-Type": "application/json"}
        self._own_headers = {"Authorization": Omit(), **UNCOMPRESSED, **json_only, **key, **provider.headers}
        super().__init__(
            api_key=provider.key or "none",
            base_url=provider.base_url,
            default_query=provider.query,
            max_retries=0,
            http_client=httpx2.AsyncClient(
                limits=_POOL,
                event_hooks={"response": [bounding(total=MAX_STREAM)]},
                follow_redirects=False,  # keys in other headers than Authorization would be forwarded
                mounts=_reached_directly(provider.base_url),
            ),
        )

    @property
    def default_headers(self) -> dict[str, str | Omit]:
        return self._own_headers

    def _validate_headers(
        self, headers: Mapping[str, str | Omit], custom_headers: Mapping[str, str | Omit]
    ) -> None:
        """Accept a provider without a key."""


def _reached_directly(url: str) -> dict[str, None]:
    """Return the mount that bypasses the environment's proxies for a server on this machine."""
    address = httpx2.URL(url)
    return {f"all://{address.netloc.decode()}": None} if is_loopback(address.host) else {}


# Common parts of the protocols.

_OF_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})


def without_useless_choice(
    fields: Object, request: ModelRequest, provider_tools: Sequence[object] = ()
) -> Object:
    """Leave out what providers reject in requests without tools, or without the required one.

    A model whose required tool is not offered may answer.
    """
    names = [tool.name for tool in request.tools]
    if (names or provider_tools) and request.settings.tool_choice in (None, *TOOL_CHOICES, *names):
        return fields
    return {name: value for name, value in fields.items() if name not in _OF_TOOLS}


def with_late_role(messages: Sequence[Message], role: str) -> Iterator[Message]:
    """Yield messages, with another role for system prompts after the history."""
    is_begun = False
    for message in messages:
        is_begun |= message["role"] != "system"
        yield {**message, "role": role} if is_begun and message["role"] == "system" else message


def read_usage(usage: Object, sent: str, written: str) -> Usage | None:
    """Return the usage that the provider counted; None if it counted nothing.

    `sent` and `written` are the prefixes of its fields, such as `prompt` in `prompt_tokens`.
    """
    tokens, replied = _count(usage, f"{sent}_tokens"), _count(usage, f"{written}_tokens")
    if not (tokens or replied):
        return None
    of_sent: Object = usage.get(f"{sent}_tokens_details") or {}
    of_written: Object = usage.get(f"{written}_tokens_details") or {}
    return Usage(
        input_tokens=tokens,
        # Gemini counts its thoughts only in the total.
        output_tokens=max(replied, _count(usage, "total_tokens") - tokens),
        cached_tokens=_count(of_sent, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=_count(of_sent, "cache_write_tokens")
        or _count(usage, "cache_creation_input_tokens"),
        reasoning_tokens=_count(of_written, "reasoning_tokens"),
    )


def _count(counted: Object, name: str) -> int:
    """Return a count; 0 for an invalid value, so that no reply is lost for it."""
    value = counted.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


class ReplyReader(ABC):
    """Reads one reply, event by event."""

    has_ended = False
    """Whether later events are useless, or never come."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether neither an answer, a call nor a finish reason has arrived."""

    @abstractmethod
    def read(self, event: Object) -> Iterator[Delta]:
        """Yield the deltas of an event; an unknown one has none."""

    @abstractmethod
    def end(self, *, is_done: bool) -> Ended:
        """Return the end of the reply; `is_done`: the provider has ended it, with or without a reason.

        Raises:
            ModelDownError: it was cut, or the provider reported an interruption.
        """


class HttpModel(Model):
    """A provider with one HTTP request for each reply."""

    api: ClassVar[str]
    """Name of its API, for texts."""
    path: ClassVar[str]
    """Path after its address."""
    reader: ClassVar[type[ReplyReader]]

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._client = ProviderClient(provider)

    @abstractmethod
    def body(self, request: ModelRequest, model: str) -> Object:
        """Return the body of a request."""

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        failures = Failures(self.provider, request, model)
        with failures.translated():
            answer = await self._send(self.body(request, model), request.settings)
        async with answer, aclosing(self._deltas(answer.response, failures)) as deltas:
            with failures.translated(), failures.unreadable_shapes(self.api, answer.response.headers):
                async for delta in deltas:
                    yield delta

    async def _send(self, body: Object, settings: ModelSettings) -> AsyncStream[object]:
        """Send a request, and return the answer with its body still unread.

        The typed `create` would convert the messages, which takes longer than all the rest, and the
        types of its chunks are not needed.
        """
        # Timeout of a silent connection; the timeouts of tokens are enforced elsewhere.
        longest = max(settings.first_token or SILENCE, settings.between_tokens or SILENCE)
        timeout = httpx2.Timeout(longest.total_seconds(), connect=CONNECT_TIMEOUT)
        return await self._client.post(
            self.path,
            cast_to=object,
            body=body,
            options={"headers": settings.extra_headers or {}, "timeout": timeout},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    async def _deltas(self, answer: httpx2.Response, failures: Failures) -> AsyncGenerator[Delta]:
        reader, is_done = self.reader(), False
        async with aclosing(read_events(answer.aiter_raw())) as events:
            async for kind, data in events:
                if is_done := data.startswith(DONE):
                    break
                for delta in reader.read(_without_error(kind, read_json(data), failures)):
                    yield delta
                if reader.has_ended:
                    break
            await _drain(events)
        if is_done and reader.is_empty:
            raise failures.unreadable("ended its answer without a reply")
        yield reader.end(is_done=is_done)

    async def close(self) -> None:
        await self._client.close()


def _without_error(kind: str, event: Object, failures: Failures) -> Object:
    """Return an event. ModelError: it is an error."""
    if error := event if kind == "error" else error_in(event):
        raise failures.of_answer(error)
    return event


_DRAINED_WITHIN = 0.5
"""Seconds; some servers keep it open."""


async def _drain(events: AsyncIterable[object]) -> None:
    """Read to the end of the body after the last event, so that the connection can be used again."""
    with suppress(TimeoutError, httpx2.TransportError, AnswerTooLargeError):
        async with asyncio.timeout(_DRAINED_WITHIN):
            async for _ in events:
                pass
