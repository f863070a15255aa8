"""A plugin that says which tools may be called: all, some, or some after people have approved."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from agents.errors import AgentDefinitionError
from agents.hooks import HookContext, NeedsApproval, Veto
from agents.plugins import Plugin
from workflows.contract.messages import ToolCall
from workflows.contract.questions import OWNER, problem_of_approvers

Decision = Literal["allow", "deny", "approve"]

_DECISIONS: tuple[Decision, ...] = ("deny", "approve", "allow")
"""In the order in which they win."""


def guard(
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    approve: Sequence[str] = (),
    default: Decision = "allow",
    approvers: str = OWNER,
) -> Plugin:
    """Decide by the name of a tool whether a call of it runs, or whether people are asked first.

    Each is a list of patterns such as "read_*" (`fnmatch`, upper and lower case differ). What `deny` names
    never runs, whatever else says; what `approve` names runs once people approve; what `allow` names runs.
    `default` decides about all other tools (default: they run). `approvers` says who approves: the owner of
    the task (default), or in the owner's place callers with this scope, such as "tasks:approve".

    Raises:
        AgentDefinitionError: a list is none, a pattern is empty or stands in two lists, an unknown default,
            nothing that could ever be stopped, or approvers whom nobody can be.
    """
    rules = {"deny": tuple(deny), "approve": tuple(approve), "allow": tuple(allow)}
    for name, given in (("allow", allow), ("deny", deny), ("approve", approve)):
        if isinstance(given, str):
            raise AgentDefinitionError(f"guard: {name} is {given!r}; give a list of patterns")
    if problem := _problem_of(rules, default):
        raise AgentDefinitionError(f"guard: {problem}")
    if problem := problem_of_approvers(approvers):
        raise AgentDefinitionError(f"guard: {problem}")
    return _Guard(name="guard", rules=rules, default=default, approvers=approvers)


@dataclass(kw_only=True, eq=False)
class _Guard(Plugin):
    rules: dict[str, tuple[str, ...]]
    default: Decision
    approvers: str

    async def before_tool(self, context: HookContext, call: ToolCall) -> Veto | NeedsApproval | None:
        """Decide by the first list that names the tool: deny, approve, allow."""
        decision = self._decide(call.name)
        if decision == "deny":
            return Veto(f"the tool {call.name!r} is not allowed here ({self._allowed()})")
        return NeedsApproval(approvers=self.approvers) if decision == "approve" else None

    def may_ask(self, tool: str) -> bool:
        """Whether people approve calls of this tool."""
        return self._decide(tool) == "approve"

    def _decide(self, tool: str) -> Decision:
        named: list[Decision] = [name for name in _DECISIONS if _names(self.rules[name], tool)]
        return named[0] if named else self.default

    def _allowed(self) -> str:
        """Tell the model what it may do instead."""
        told = {"allow": list(self.rules["allow"]), "approve": list(self.rules["approve"])}
        told.get(self.default, []).append("all others")
        words = {"allow": "allowed", "approve": "allowed once people approve"}
        lists = [f"{words[name]}: {', '.join(patterns)}" for name, patterns in told.items() if patterns]
        return "; ".join(lists) or "no tool is"


def _problem_of(rules: dict[str, tuple[str, ...]], default: str) -> str:
    """Return what is wrong with the rules of a guard; empty if nothing is."""
    patterns = [pattern for given in rules.values() for pattern in given]
    if default not in _DECISIONS:
        return f"default is {default!r}; choose 'allow', 'deny' or 'approve'"
    if not all(isinstance(pattern, str) and pattern.strip() for pattern in patterns):  # pyright: ignore[reportUnnecessaryIsInstance] -- authors may give anything
        return "a pattern is empty, or no text; give names of tools, or patterns such as 'read_*'"
    if twice := next((pattern for pattern in patterns if patterns.count(pattern) > 1), ""):
        return f"{twice!r} is given twice; only one of the lists can decide about it"
    if default == "allow" and not rules["deny"] and not rules["approve"]:
        return "it would stop nothing; give deny or approve, or default='deny'"
    return ""


def _names(patterns: Sequence[str], tool: str) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
