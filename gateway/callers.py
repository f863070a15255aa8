"""Who calls, and what they may see."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from pydantic import JsonValue
from starlette.requests import HTTPConnection

from everloop.workflows.contract.tasks import Identity, TaskView

ANONYMOUS = "anonymous"
"""The owner of tasks and artifacts whose client did not authenticate."""

CALLER = "everloop.caller"
"""Where the scope of an HTTP request holds its `Caller`."""


@dataclass(frozen=True)
class Caller(User):
    """Who makes a call, as far as it has been proved.

    `owner` is whose tasks these are: all callers of one owner see the same. `scheme` is how the caller was
    recognised ("apiKey", "bearer", "mutualTLS"; empty: not at all). `subject` names the caller among those of
    one owner. `scopes` None means that nothing is refused. `claims` are told to tools: nothing secret.
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


def caller_of_request(request: HTTPConnection) -> Caller:
    """Return who makes an HTTP request."""
    caller = request.scope.get(CALLER)
    return caller if isinstance(caller, Caller) else Caller()
