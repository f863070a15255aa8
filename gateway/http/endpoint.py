"""What every call over HTTP goes through, of A2A and of what is served beside it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from a2a.utils.errors import A2AError
from opentelemetry import trace
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.context import trace_context
from everloop.gateway.errors import UnavailableNowError
from everloop.gateway.http.errors import as_a2a
from everloop.gateway.http.requests import A2ARequest, BodyLimits
from everloop.gateway.tasks.snapshots import held_by

_tracer = trace.get_tracer("everloop.gateway")


@dataclass(frozen=True)
class HttpShell:
    """What all endpoints share. `is_stopping`: whether the process ends its streams."""

    access: AccessControl
    limits: BodyLimits
    is_stopping: Callable[[], bool] = lambda: False


class HttpEndpoint(ABC):
    """An ASGI application that answers the calls of one address.

    It bounds what it reads, runs each call in a span of the caller's trace, and answers whatever goes wrong.
    """

    stops: ClassVar[UnavailableNowError]
    """What is told when the process stops before a call is answered."""

    def __init__(self, shell: HttpShell) -> None:
        self._shell = shell

    @abstractmethod
    def name(self, scope: Scope) -> str:
        """Return the name of the span."""

    @abstractmethod
    async def respond(self, request: A2ARequest) -> Response | None:
        """Answer a call, None if nobody is there to hear it; what goes wrong is raised."""

    @abstractmethod
    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        """Return an error as clients of this address read it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parent = trace_context(Headers(scope=scope))
        with _tracer.start_as_current_span(self.name(scope), parent, trace.SpanKind.SERVER) as span:
            request = A2ARequest(scope, receive, self._shell.limits, span)
            with suppress(ClientDisconnect), held_by(request.call_state):
                try:
                    response = await self._answer(request)
                finally:
                    request.let_go()
                if response:
                    await response(scope, receive, send)

    async def _answer(self, request: A2ARequest) -> Response | None:
        try:
            return await self.respond(request)
        except ClientDisconnect:
            raise
        except asyncio.CancelledError:
            if not self._shell.is_stopping():
                raise
            # The time to end is over. Left alone, uvicorn would say that we have failed.
            return self.refuse(self.stops, request)
        except Exception as failure:  # noqa: BLE001 -- every failure is answered, with nothing of our insides
            return self.refuse(as_a2a(failure), request)
