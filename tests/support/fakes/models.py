"""A custom model whose provider is scripted."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

from pydantic_core import to_jsonable_python

from everloop.models.conformance import BUSY_FOR, Played, ProviderHarness
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    Model,
    ModelBusyError,
    ModelDownError,
    ModelRequest,
    Opaque,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)


class PlayedModel(Model):
    """Plays its replies in the order of the requests."""

    def __init__(self, harness: "PlayedHarness", *replies: Played) -> None:
        self._harness = harness
        self._replies = list(replies)

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        self._harness.requests.append(json.loads(json.dumps(to_jsonable_python(request))))
        played = self._replies.pop(0)
        if played.failure is ModelBusyError:
            raise ModelBusyError("it is busy", retry_after=BUSY_FOR)
        if played.failure:
            raise played.failure("it failed")
        try:
            for delta in _pieces(played):
                yield delta
            if played.then == "cut":
                raise ModelDownError("the connection was lost")
            if played.then == "silent":
                await asyncio.Event().wait()
            yield self._end(played)
        finally:
            self._harness.left.set()

    @staticmethod
    def _end(played: Played) -> Ended:
        word = {"signature": played.opaque}
        opaque = Opaque(calls={0: word}) if played.calls else Opaque(fields=word)
        return Ended(played.reason, usage=played.usage, opaque=opaque if played.opaque else Opaque())


def _pieces(played: Played) -> Iterable[Delta]:
    yield from (ThoughtDelta(piece) for piece in played.thought)
    yield from (TextDelta(piece) for piece in played.text)
    yield from (RefusalDelta(piece) for piece in played.refusal)
    for number, (name, arguments) in enumerate(played.calls):
        yield CallDelta(number, name=name)
        yield from (CallDelta(number, arguments=piece) for piece in arguments)


class PlayedHarness(ProviderHarness):
    """Runs a `PlayedModel` in the suite; `bent` makes a faulty model of it."""

    def __init__(self, bent: Callable[[Model], Model] = lambda model: model) -> None:
        super().__init__()
        self.left = asyncio.Event()
        self._bent = bent

    @asynccontextmanager
    async def playing(self, *replies: Played) -> AsyncGenerator[Model]:
        yield self._bent(PlayedModel(self, *replies))

    async def wait_until_left(self) -> None:
        await self.left.wait()
