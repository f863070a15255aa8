"""What callers may do: scopes, and which of them an operation takes.

tasks:read    read tasks, follow them, read their push notification configs, download artifacts
tasks:write   send messages, cancel tasks, set and remove push notification configs
operator      decrypt what Temporal keeps of everybody's tasks (gateway.codec_endpoint); it must be named
agents:{id}   with this agent; whoever has none of this kind may do it with every agent
"""

from agents.plugins import is_agent_id
from gateway.auth_schemes import REALM
from gateway.callers import Caller
from gateway.refusals import ForbiddenError

READ = "tasks:read"
WRITE = "tasks:write"
OPERATOR = "operator"
AGENTS = "agents:"

_READS = frozenset(
    {
        *("GetTask", "ListTasks", "SubscribeToTask"),
        *("GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"),
        *("tasks/get", "tasks/resubscribe"),
        *("tasks/pushNotificationConfig/get", "tasks/pushNotificationConfig/list"),
    }
)
_WRITES = frozenset(
    {
        *("SendMessage", "SendStreamingMessage", "CancelTask"),
        *("CreateTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"),
        *("message/send", "message/stream", "tasks/cancel"),
        *("tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/delete"),
    }
)
"""What operations are called over HTTP, in A2A 1.0 and 0.3."""

BEARER = "bearer"
"""The scheme whose challenges name a missing scope (RFC 6750 §3.1)."""


def flaw_of_scope(scope: str) -> str:
    """Return why there is no such scope, empty if there is one."""
    if scope in {READ, WRITE, OPERATOR} or (
        scope.startswith(AGENTS) and is_agent_id(scope.removeprefix(AGENTS))
    ):
        return ""
    scopes = f"{READ}, {WRITE}, {OPERATOR} and {AGENTS}ID with the id of an agent"
    return f"there is no scope {scope!r}; there are {scopes}"


def check_scope(caller: Caller, scope: str) -> None:
    """Refuse a caller without a scope.

    Raises:
        ForbiddenError: it names the scope.
    """
    if caller.scopes is not None and scope not in caller.scopes:
        raise _forbidden(caller, scope)


def require_scope(caller: Caller, scope: str) -> None:
    """Refuse a caller whose credentials do not name a scope: those without any scopes, too.

    Raises:
        ForbiddenError: it names the scope.
    """
    if scope not in (caller.scopes or ()):
        raise _forbidden(caller, scope)


def check_operation(caller: Caller, name: str) -> None:
    """Refuse a caller without the scope of an operation, before its parameters are looked at.

    The agent is in the parameters: the handler sees to that, and to what has no name here.

    Raises:
        ForbiddenError: it names the scope.
    """
    if name in _READS or name in _WRITES:
        check_scope(caller, READ if name in _READS else WRITE)


def check_agent(caller: Caller, agent_id: str) -> None:
    """Refuse a caller whose scopes name agents, but not this one.

    Raises:
        ForbiddenError: it names the scope.
    """
    if is_bound_to_agents(caller):
        check_scope(caller, AGENTS + agent_id)


def is_bound_to_agents(caller: Caller) -> bool:
    """Whether a caller may do things with some agents only."""
    return any(scope.startswith(AGENTS) for scope in caller.scopes or ())


def _forbidden(caller: Caller, scope: str) -> ForbiddenError:
    challenge = f'Bearer realm="{REALM}", error="insufficient_scope", scope="{scope}"'
    return ForbiddenError(
        f"this takes the scope {scope}, which these credentials do not have; ask the operator for it",
        challenge=challenge if caller.scheme == BEARER else "",
    )
