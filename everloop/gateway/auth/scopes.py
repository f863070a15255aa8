"""Scopes of callers, and the scope of each operation.

tasks:read     read tasks, follow them, read their push notification configs, download artifacts
tasks:write    send messages, cancel tasks, set and remove push notification configs
tasks:approve  answer questions addressed to its holders in the owner's place
               (everloop.gateway.extension.question_handlers), as do scopes of your own that tools or guards
               name as their approvers; they must be named
admin          read and delete everything of any owner (everloop.gateway.http.http_calls); it must be named
operator       decrypt everything in Temporal (everloop.gateway.extension.codec_routes); it must be named
agents:{id}    use this agent; without any scope of this kind a caller may use every agent
"""

from everloop.gateway.auth.schemes import REALM
from everloop.gateway.context import Caller
from everloop.gateway.errors import ForbiddenError
from everloop.workflows.contract.names import is_agent_id
from everloop.workflows.contract.questions import APPROVE, OWNER, problem_of_approvers

READ = "tasks:read"
WRITE = "tasks:write"
ADMIN = "admin"
OPERATOR = "operator"
AGENTS = "agents:"

_OWN_APPROVERS = ":approve"
"""Suffix of scopes in API keys that authors may define."""

BEARER = "bearer"
"""The scheme whose challenges name a missing scope (RFC 6750 §3.1)."""


def problem_of_scope(scope: str) -> str:
    """Return why a scope is invalid, empty if it is valid."""
    if scope in {READ, WRITE, ADMIN, OPERATOR} or (
        scope.startswith(AGENTS) and is_agent_id(scope.removeprefix(AGENTS))
    ):
        return ""
    if scope == APPROVE or (scope.endswith(_OWN_APPROVERS) and not problem_of_approvers(scope)):
        return ""
    scopes = (
        f"{READ}, {WRITE}, {APPROVE}, {ADMIN}, {OPERATOR}, {AGENTS}ID with the id of an agent, and scopes of "
        f"your own that end in {_OWN_APPROVERS}"
    )
    return f"there is no scope {scope!r}; there are {scopes}"


def check_scope(caller: Caller, scope: str) -> None:
    """Refuse a caller without a scope.

    Raises:
        ForbiddenError: it names the scope.
    """
    if caller.scopes is not None and scope not in caller.scopes:
        raise _forbidden(caller, scope)


def require_scope(caller: Caller, scope: str) -> None:
    """Refuse a caller whose credentials do not name a scope, also one without any scopes.

    Raises:
        ForbiddenError: it names the scope.
    """
    if scope not in (caller.scopes or ()):
        raise _forbidden(caller, scope)


def approver_scopes(caller: Caller) -> tuple[str, ...]:
    """Return the scopes by which a caller may answer in the place of owners.

    Raises:
        ForbiddenError: the caller has none.
    """
    named = named_approver_scopes(caller)
    if not named:
        raise _forbidden(caller, APPROVE)
    return named


def named_approver_scopes(caller: Caller) -> tuple[str, ...]:
    """Return the same, possibly none."""
    scopes = caller.scopes or ()
    return tuple(sorted(scope for scope in scopes if scope != OWNER and not problem_of_approvers(scope)))


def check_agent(caller: Caller, agent_id: str) -> None:
    """Refuse a caller whose scopes name other agents only.

    Raises:
        ForbiddenError: it names the scope.
    """
    if not may_use(caller, agent_id):
        raise _forbidden(caller, AGENTS + agent_id)


def may_use(caller: Caller, agent_id: str) -> bool:
    return not is_bound_to_agents(caller) or AGENTS + agent_id in (caller.scopes or ())


def is_bound_to_agents(caller: Caller) -> bool:
    """Return True if the caller's scopes name agents."""
    return any(scope.startswith(AGENTS) for scope in caller.scopes or ())


def _forbidden(caller: Caller, scope: str) -> ForbiddenError:
    challenge = f'Bearer realm="{REALM}", error="insufficient_scope", scope="{scope}"'
    return ForbiddenError(
        f"this takes the scope {scope}, which these credentials do not have; ask the operator for it",
        challenge=challenge if caller.scheme == BEARER else "",
    )
