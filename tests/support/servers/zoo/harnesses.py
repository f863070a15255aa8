"""Stages for the models that ship: a server of the zoo plays the replies that checks of models require."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from everloop.models import conformance
from everloop.models.catalogue import Provider as Entry
from everloop.models.conformance import BUSY_FOR, ProviderHarness
from everloop.models.interface import (
    Model,
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    PromptTooLongError,
    UnreadableReplyError,
)
from tests.support.servers.scripted_openai import (
    Answer,
    ReceivedRequest,
    Refusal,
    ScriptedOpenAI,
    Whole,
    Wire,
)
from tests.support.servers.zoo.openai_chat import OpenAI
from tests.support.servers.zoo.provider import (
    Given,
    Object,
    Played,
    calls_of,
    in_pieces,
)
from tests.support.servers.zoo.responses import OpenAIResponses

FAILURES: Mapping[type[ModelError], Answer] = {
    ModelBusyError: Refusal(429, headers={"retry-after": f"{BUSY_FOR.total_seconds():g}"}),
    ModelDownError: Refusal(503),
    UnreadableReplyError: Whole("nothing that anybody knows"),
    ModelRefusedError: Refusal(401, "invalid_api_key"),
    PromptTooLongError: Refusal(400, "context_length_exceeded"),
}


class ThinkingOpenAI(OpenAI):
    """Chat Completions with reasoning, and a signature on the first call."""

    secret: str = ""

    def play(self, given: Given, body: Object) -> list[Object | str]:
        first, *rest = super().play(given, body)
        thought = [self.chunk(body, delta) for delta in in_pieces("reasoning_content", given.reply.thought)]
        if self.secret:
            opening = next(event for event in rest if isinstance(event, dict) and _calls(event))
            _calls(opening)[0]["signature"] = self.secret
        return [first, *thought, *rest]


def _calls(event: Object) -> list[Object]:
    choices = event["choices"]
    first = choices[0] if isinstance(choices, list) and choices else None
    delta = first.get("delta") if isinstance(first, dict) else None
    return calls_of(delta) if isinstance(delta, dict) else []


class ServerHarness(ProviderHarness):
    """A shipped model, which asks a server of the zoo."""

    def __init__(self, make: Callable[[Entry], Model], kind: type[ThinkingOpenAI | OpenAIResponses]) -> None:
        super().__init__()
        self.model = kind.model
        self._make, self._kind = make, kind
        self._left = asyncio.Event()

    @asynccontextmanager
    async def playing(self, *replies: conformance.Played) -> AsyncGenerator[Model]:
        script, provider = list(replies), self._kind()

        def answer(received: ReceivedRequest) -> Answer:
            self.requests.append(received.body)
            self._left = received.disconnected
            played = script.pop(0)
            if played.failure:
                return FAILURES[played.failure]
            provider.secret = played.opaque
            provider.script.append(_reply(played))
            wire = provider(received)
            assert isinstance(wire, Wire)
            return replace(wire, is_cut=played.then == "cut", is_silent=played.then == "silent")

        async with ScriptedOpenAI(answer) as server:
            model = self._make(Entry("test", base_url=server.base_url, key="sk-of-a-test"))
            try:
                yield model
            finally:
                await model.close()

    async def wait_until_left(self) -> None:
        await self._left.wait()


def _reply(played: conformance.Played) -> Played:
    return Played(
        text=played.text,
        thought=played.thought,
        calls=played.calls,
        refusal=played.refusal,
        reason=played.reason if played.reason in {"length", "content_filter"} else "",  # pyright: ignore[reportArgumentType] -- narrowed by the set
        usage=(played.usage.input_tokens, played.usage.output_tokens),
        cut=played.then != "end",
    )
