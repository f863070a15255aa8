"""Plugin with rules about tools: all are allowed, some, or some after an approval."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from everloop.agents.errors import AgentDefinitionError, checked
from everloop.agents.hooks import HookContext, NeedsApproval, Veto
from everloop.agents.plugins import Plugin
from everloop.models.interface import ModelRequest
from everloop.workflows.contract.agent_settings import TOOL_CHOICES
from everloop.workflows.contract.messages import ToolCall, Usage
from everloop.workflows.contract.questions import OWNER, problem_of_approvers
from everloop.workflows.contract.tasks import Decision, GuardRules


@dataclass(kw_only=True, eq=False)
class Guard(Plugin):
    """Decides about the calls of its agent; its rules also apply to the tasks of sub-agents."""

    rules: GuardRules

    async def before_tool(self, context: HookContext, call: ToolCall) -> Veto | NeedsApproval | None:
        """Decide by the first list with a match: deny, approve, allow."""
        if refusal := self.rules.refusal(call.name):
            return Veto(refusal)
        return NeedsApproval(approvers=self.rules.approvers) if self.may_ask(call.name) else None

    def may_ask(self, tool: str) -> bool:
        """Return True if calls of this tool need an approval."""
        return self.rules.decide(tool) == "approve"


def guard(
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    approve: Sequence[str] = (),
    default: Decision = "allow",
    approvers: str = OWNER,
) -> Plugin:
    """Decide by the name of a tool whether a call of it runs, or needs an approval first.

    Each is a list of patterns such as "read_*" (`fnmatch`, upper and lower case differ). A tool in
    `deny` never runs, whatever other rules are; a tool in `approve` runs after an approval; a tool in
    `allow` runs. `default` decides about all other tools (default: they run). `approvers` are the owner
    of the task (default), or in the owner's place callers with this scope, such as "tasks:approve".

    It also applies to the tools of sub-agents, and of theirs, besides their own guards.

    Raises:
        AgentDefinitionError: a list is invalid, a pattern is empty or in two lists, an unknown default, rules
            that stop nothing, or approvers that cannot exist.
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
        allow=tuple(allow), deny=tuple(deny), approve=tuple(approve), default=default, approvers=approvers
    )
    return Guard(name="guard", rules=rules)


def _problem_of(patterns: Sequence[str], default: str) -> str:
    """Return the error in the patterns of a guard; empty if they are valid."""
    if default not in get_args(Decision):
        return f"default is {default!r}; choose 'allow', 'deny' or 'approve'"
    if not all(isinstance(pattern, str) and pattern.strip() for pattern in patterns):  # pyright: ignore[reportUnnecessaryIsInstance] -- authors may give anything
        return "a pattern is empty, or no text; give names of tools, or patterns such as 'read_*'"
    if twice := next((pattern for pattern in patterns if patterns.count(pattern) > 1), ""):
        return f"{twice!r} is given twice; only one of the lists can decide about it"
    return ""


# A budget: a task that has used most of it is told to finish.


@checked
def budget(*, tokens: int | None = None, cost: float | None = None, warn_at: float = 0.8) -> Plugin:
    """End a task gracefully before it has used too much.

    `tokens` are those of prompts and replies together, `cost` is in US dollars; with it, a model of
    unknown price is not called. The usage of sub-agents counts. From the share `warn_at` on (default
    0.8) the model reads before each reply how much is left; at the limit it is offered no tools, and
    gives its final answer. `Limits` with more tokens, or a higher cost, are a hard stop beside it.

    Raises:
        AgentDefinitionError: no limit, or a budget or share that no task could keep.
    """
    if tokens is None and cost is None:
        raise AgentDefinitionError("budget: it has neither tokens nor cost; give one of them, or both")
    if tokens is not None and tokens < 1:
        raise AgentDefinitionError(f"budget: tokens start at 1, not at {tokens}; None means no budget")
    if cost is not None and not cost > 0:
        raise AgentDefinitionError(f"budget: cost is {cost}; give more than 0, or None for no budget")
    if not 0 < warn_at <= 1:
        raise AgentDefinitionError(f"budget: warn_at is {warn_at}; give a share above 0, at most 1")
    return Budget(name="budget", tokens=tokens, cost=cost, warn_at=warn_at)


@dataclass(kw_only=True, eq=False)
class Budget(Plugin):
    """Tells the model the remaining budget, and removes its tools at the limit; see `budget`."""

    tokens: int | None
    cost: float | None
    warn_at: float

    @property
    def needs_price(self) -> bool:
        return self.cost is not None

    async def before_model_call(self, context: HookContext, request: ModelRequest) -> ModelRequest | None:
        share = self._used_share(context.usage)
        # The model may already be at its final answer, and have to call a certain tool.
        is_forced = request.settings.tool_choice not in (None, *TOOL_CHOICES)
        if share < self.warn_at or is_forced:
            return None
        if share < 1:
            return _noted(request, self._warning(context.usage, share))
        return _noted(replace(request, tools=()), _USED_UP)

    def _used_share(self, usage: Usage) -> float:
        of_tokens = _tokens(usage) / self.tokens if self.tokens else 0
        return max(of_tokens, usage.cost_or_zero / self.cost if self.cost else 0)

    def _warning(self, usage: Usage, share: float) -> str:
        left: list[str] = []
        if self.tokens:
            left.append(f"{self.tokens - _tokens(usage)} of {self.tokens} tokens")
        if self.cost:
            left.append(f"${self.cost - usage.cost_or_zero:.4f} of ${self.cost:.4f}")
        return (
            f"[This task has used {share:.0%} of its budget; {' and '.join(left)} are left. Come to an end: "
            "do only what the answer cannot do without, then answer.]"
        )


_USED_UP = (
    "[This task has used up its budget. There are no tools any more: answer now with what you have, and say "
    "what is missing.]"
)


def _noted(request: ModelRequest, note: str) -> ModelRequest:
    return replace(request, messages=(*request.messages, {"role": "system", "content": note}))


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
