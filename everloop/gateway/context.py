"""Who calls, and what they may see."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import InvalidParamsError
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from packaging.version import Version
from pydantic import JsonValue

from everloop.agents.agent import Agent
from everloop.agents.errors import UnknownAgentError
from everloop.agents.registry import AgentRegistry
from everloop.gateway.errors import TooManyHeadersError
from everloop.workflows.contract.names import ANONYMOUS
from everloop.workflows.contract.tasks import Identity, TaskView


@dataclass(frozen=True)
class Caller(User):
    """Who makes a call, as far as it has been proved.

    `owner` is whose tasks these are: all callers of one owner see the same. `scheme` is how the caller was
    authenticated ("apiKey", "bearer", "mutualTLS"; empty: not at all). `subject` names the caller among those
    of one owner. `scopes` None means that nothing is refused. `claims` are told to tools: nothing secret.
    """

    owner: str = ANONYMOUS
    scheme: str = ""
    subject: str = ""
    scopes: frozenset[str] | None = None
    claims: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    @property
    def is_authenticated(self) -> bool:
        return bool(self.scheme)

    @property
    def user_name(self) -> str:
        return self.owner


@dataclass(frozen=True)
class Viewer:
    """Whose tasks with which agent are looked at; those of others do not exist."""

    owner: str
    agent_id: str


def viewer_of_view(view: TaskView) -> Viewer:
    """Return who may see a task."""
    return Viewer(view.owner, view.agent_id)


def identity_of(caller: Caller) -> Identity | None:
    """Return what the tools of a task may know of who started it; None of the anonymous caller."""
    if not caller.is_authenticated:
        return None
    scopes = None if caller.scopes is None else tuple(sorted(caller.scopes))
    return Identity(scheme=caller.scheme, subject=caller.subject, scopes=scopes, claims=dict(caller.claims))


def caller_of(context: ServerCallContext) -> Caller:
    """Return who makes an A2A call."""
    return context.user if isinstance(context.user, Caller) else Caller()


# What owners may be called: names end in keys of Redis, in search attributes of Temporal, and on screens.

MAX_OWNER_BYTES = 255


def problem_of_owner(name: str) -> str:
    """Return why nobody can be called that, empty if one can.

    At most 255 bytes of printable characters without a space at either end. Nobody is called "anonymous",
    however it is written: that is who did not authenticate.
    """
    if not name:
        return "it is empty"
    if len(name.encode(errors="replace")) > MAX_OWNER_BYTES:
        return f"it is longer than {MAX_OWNER_BYTES} bytes"
    if not name.isprintable():
        return "it has control characters, or others that cannot be printed"
    if name != name.strip():
        return "it begins or ends with a space"
    if name.casefold() == ANONYMOUS:
        return f"{ANONYMOUS!r} is who did not authenticate"
    return ""


# Which agent a call is for: the one of its address, or the one that `tenant` names.
#
# A2A 1.0 §4.4.6: an interface of a card may have a tenant, which its clients send back. Ours is the id of the
# agent, for gRPC has no paths; JSON-RPC and REST take it too.

_SHOWN = 100
"""How many characters of a wrong tenant are repeated."""

AGENT = "everloop.agent"
"""Where a call's state holds the id of the agent whose address was called; not there: the default one's."""


def agent_of(context: ServerCallContext, agents: AgentRegistry) -> Agent:
    """Return the agent that a call is for.

    Raises:
        InvalidParamsError: `tenant` names no agent of this server, or another one than the address does.
    """
    addressed: str = context.state.get(AGENT, "")
    named = context.tenant or addressed or agents.default.id
    try:
        agent = agents.find(named)
    except UnknownAgentError:
        raise InvalidParamsError(
            f"tenant is {named[:_SHOWN]!r}, which is no agent of this server; "
            "leave it out, or send the one of a card"
        ) from None
    if addressed and agent.id != addressed:
        raise InvalidParamsError(
            f"tenant is {named!r}, but this is the address of agent {addressed!r}; leave tenant out"
        )
    return agent


# Which version of A2A a call speaks (A2A 1.0 §3.6: the A2A-Version header; none means 0.3).

_SERVED = {(1, 0): PROTOCOL_VERSION_1_0, (0, 3): PROTOCOL_VERSION_0_3}


def served_version(text: str) -> str | None:
    """Return which of our versions a client names, None if it is no such; patch numbers do not matter."""
    try:
        version = Version(text)
    except ValueError:  # also a number of thousands of digits
        return None
    return _SERVED.get((version.major, version.minor))


def is_legacy(context: ServerCallContext) -> bool:
    """Whether the call comes from a client of A2A 0.3."""
    headers: dict[str, str] = context.state.get("headers", {})
    sent = headers.get(VERSION_HEADER.lower()) or PROTOCOL_VERSION_0_3
    return served_version(sent) == PROTOCOL_VERSION_0_3


# The headers of a call, or its gRPC metadata: read in one pass, for whoever sends them is not known yet.

MAX_HEADERS = 400
"""Of one request. Proxies take 100 as a rule."""

MAX_HEAD_BYTES = 32_768
"""Of the request line and the headers together."""

MAX_TARGET_BYTES = 8_192
"""Of the address in the request line, with its query."""

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
                raise TooManyHeadersError(
                    f"the request has more than {MAX_HEADERS} headers, which is what this server reads; "
                    "send fewer"
                )
            values.setdefault(name, []).append(value)
        # Joined once: adding each to what stands there already would copy that each time.
        super().__init__((name, ", ".join(each)) for name, each in values.items())
        self.repeated = frozenset(name for name, each in values.items() if len(each) > 1)


def trace_context(headers: Mapping[str, str]) -> Context:
    """Return the caller's trace. Its baggage is not read: nothing here needs it.

    OpenTelemetry reads baggage in quadratic time, and logs what it cannot read, of whoever sends it.
    """
    found = {name: headers.get(name, "") for name in ("traceparent", "tracestate")}
    return _TRACE_CONTEXT.extract(
        {name: value for name, value in found.items() if 0 < len(value) <= MAX_TRACE_CHARACTERS}
    )
