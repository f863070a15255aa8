"""A plugin that says which tools may be called: all, some, or some after people have approved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.hooks import HookContext, NeedsApproval, Veto
from everloop.agents.plugins import Plugin
from everloop.workflows.contract.guards import Decision, GuardRules
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import OWNER, problem_of_approvers


@dataclass(kw_only=True, eq=False)
class Guard(Plugin):
    """Decides about the calls of its agent; its rules go along to the tasks of sub-agents."""

    rules: GuardRules

    async def before_tool(self, context: HookContext, call: ToolCall) -> Veto | NeedsApproval | None:
        """Decide by the first list that names the tool: deny, approve, allow."""
        if refusal := self.rules.refusal(call.name):
            return Veto(refusal)
        return NeedsApproval(approvers=self.rules.approvers) if self.may_ask(call.name) else None

    def may_ask(self, tool: str) -> bool:
        """Whether people approve calls of this tool."""
        return self.rules.decide(tool) == "approve"


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

    It holds for the tools of sub-agents as well, and of theirs, besides the guards that those have.

    Raises:
        AgentDefinitionError: a list is none, a pattern is empty or stands in two lists, an unknown default,
            nothing that could ever be stopped, or approvers whom nobody can be.
    """
    for name, given in (("allow", allow), ("deny", deny), ("approve", approve)):
        if isinstance(given, str):
            raise AgentDefinitionError(f"guard: {name} is {given!r}; give a list of patterns")
    problem = _problem_of([*deny, *approve, *allow], default) or problem_of_approvers(approvers)
    if not problem and default == "allow" and not deny and not approve:
        problem = "it would stop nothing; give deny or approve, or default='deny'"
    if problem:
        raise AgentDefinitionError(f"guard: {problem}")
    rules = GuardRules(
        allow=tuple(allow),
        deny=tuple(deny),
        approve=tuple(approve),
        default=default,
        approvers=approvers,
    )
    return Guard(name="guard", rules=rules)


def _problem_of(patterns: Sequence[str], default: str) -> str:
    """Return what is wrong with the patterns of a guard; empty if nothing is."""
    if default not in get_args(Decision):
        return f"default is {default!r}; choose 'allow', 'deny' or 'approve'"
    if not all(isinstance(pattern, str) and pattern.strip() for pattern in patterns):  # pyright: ignore[reportUnnecessaryIsInstance] -- authors may give anything
        return "a pattern is empty, or no text; give names of tools, or patterns such as 'read_*'"
    if twice := next((pattern for pattern in patterns if patterns.count(pattern) > 1), ""):
        return f"{twice!r} is given twice; only one of the lists can decide about it"
    return ""
