"""The headers of a call, or its gRPC metadata: read in one pass, for whoever sends them is not known yet."""

from collections.abc import Iterable, Mapping

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from everloop.gateway.refusals import TooManyHeadersError

MAX_HEADERS = 400
"""Of one request. Proxies take 100 as a rule."""

MAX_HEAD_BYTES = 65_536
"""Of the request line and the headers together."""

MAX_TRACE_CHARACTERS = 512
"""Of `traceparent` and of `tracestate`; what is longer is not read (W3C Trace Context §3.3.1.5)."""

_TRACE_CONTEXT = TraceContextTextMapPropagator()


class CallHeaders(dict[str, str]):
    """Headers by their names in small letters; one that came more than once is joined (RFC 9110 §5.3).

    `repeated`: the names of those.
    """

    def __init__(self, headers: Iterable[tuple[str, str]]) -> None:
        """Read the headers.

        Raises:
            TooManyHeadersError: there are more than `MAX_HEADERS`.
        """
        values: dict[str, list[str]] = {}
        for count, (name, value) in enumerate(headers, start=1):
            if count > MAX_HEADERS:
                raise too_many_headers()
            values.setdefault(name, []).append(value)
        # Joined once: adding each to what stands there already would copy that each time.
        super().__init__((name, ", ".join(each)) for name, each in values.items())
        self.repeated = frozenset(name for name, each in values.items() if len(each) > 1)


def too_many_headers() -> TooManyHeadersError:
    """Return what a request with too many headers is refused with."""
    return TooManyHeadersError(
        f"the request has more than {MAX_HEADERS} headers, which is what this server reads; send fewer"
    )


def trace_context(headers: Mapping[str, str]) -> Context:
    """Return the caller's trace. Its baggage is not read: nothing here needs it.

    OpenTelemetry reads baggage in quadratic time, and logs what it cannot read, of whoever sends it.
    """
    found = {name: headers.get(name, "") for name in ("traceparent", "tracestate")}
    return _TRACE_CONTEXT.extract(
        {name: value for name, value in found.items() if 0 < len(value) <= MAX_TRACE_CHARACTERS}
    )
