"""The caller of a request, and its access."""

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
    """Authenticated caller.

    `owner` owns the tasks: all callers of one owner see the same. `scheme` is the kind of
    authentication ("apiKey", "bearer", "mutualTLS"; empty: none). `subject` distinguishes callers of
    one owner. `scopes` None: unrestricted. `claims` are passed to tools and must not be secret.
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
    """An owner and an agent: tasks of others do not exist for the viewer."""

    owner: str
    agent_id: str


def viewer_of_view(view: TaskView) -> Viewer:
    return Viewer(view.owner, view.agent_id)


def identity_of(caller: Caller) -> Identity | None:
    """Return the caller's identity for tools; None for the anonymous caller."""
    if not caller.is_authenticated:
        return None
    scopes = None if caller.scopes is None else tuple(sorted(caller.scopes))
    return Identity(scheme=caller.scheme, subject=caller.subject, scopes=scopes, claims=dict(caller.claims))


def caller_of(context: ServerCallContext) -> Caller:
    """Return the caller of an A2A request."""
    return context.user if isinstance(context.user, Caller) else Caller()


# Names of owners: they are suffixes of keys in Redis, search attributes of Temporal, and texts on screens.

MAX_OWNER_BYTES = 255


def problem_of_owner(name: str) -> str:
    """Return why an owner's name is invalid, empty if it is valid.

    At most 255 bytes of printable characters without a space at either end, and not "anonymous" in any
    case: that is the owner of unauthenticated callers.
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


# The agent of a call: that of its address, or the one that `tenant` names.
#
# A2A 1.0 §4.4.6: an interface of a card may have a tenant, which its clients send back. Ours is the id of the
# agent, for gRPC has no paths; JSON-RPC and REST accept it too.

_SHOWN = 100
"""Maximum characters of a wrong tenant in an error."""

AGENT = "everloop.agent"
"""Key in a call's state: the id of the agent in the address; missing for the default one's."""


def agent_of(context: ServerCallContext, agents: AgentRegistry) -> Agent:
    """Return the agent of a call.

    Raises:
        InvalidParamsError: `tenant` is not an agent of this server, or differs from the one of the address.
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


# The A2A version of a call (A2A 1.0 §3.6: the A2A-Version header; a missing one means 0.3).

_SERVED = {(1, 0): PROTOCOL_VERSION_1_0, (0, 3): PROTOCOL_VERSION_0_3}


def served_version(text: str) -> str | None:
    """Return the supported version that a client requests, None for others; patch numbers are ignored."""
    try:
        version = Version(text)
    except ValueError:  # also a number of thousands of digits
        return None
    return _SERVED.get((version.major, version.minor))


def is_legacy(context: ServerCallContext) -> bool:
    """Return True for a client of A2A 0.3."""
    headers: dict[str, str] = context.state.get("headers", {})
    sent = headers.get(VERSION_HEADER.lower()) or PROTOCOL_VERSION_0_3
    return served_version(sent) == PROTOCOL_VERSION_0_3


# The headers of a call, or its gRPC metadata: read in one pass, before the sender is authenticated.

MAX_HEADERS = 400
"""Headers per request. Proxies usually allow 100."""

MAX_HEAD_BYTES = 32_768
"""Bytes of the request line and the headers together."""

MAX_TARGET_BYTES = 8_192
"""Bytes of the address in the request line, with its query."""

MAX_TRACE_CHARACTERS = 512
"""Characters of `traceparent` and of `tracestate`; longer ones are ignored (W3C Trace Context §3.3.1.5)."""

_TRACE_CONTEXT = TraceContextTextMapPropagator()


class CallHeaders(dict[str, str]):
    """Headers by lower-case name; repeated ones are joined (RFC 9110 §5.3).

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
        # Joined once: appending to the existing value would copy it each time.
        super().__init__((name, ", ".join(each)) for name, each in values.items())
        self.repeated = frozenset(name for name, each in values.items() if len(each) > 1)


def trace_context(headers: Mapping[str, str]) -> Context:
    """Return the caller's trace context, without baggage.

    OpenTelemetry parses baggage in quadratic time, and logs invalid entries, from any sender.
    """
    found = {name: headers.get(name, "") for name in ("traceparent", "tracestate")}
    return _TRACE_CONTEXT.extract(
        {name: value for name, value in found.items() if 0 < len(value) <= MAX_TRACE_CHARACTERS}
    )
