"""What guards say of tools, by their names: what runs, what never does, and what people approve first."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import OWNER

Decision = Literal["allow", "deny", "approve"]


class GuardRules(Wire):
    """Lists of patterns such as "read_*" (`fnmatch`, upper and lower case differ).

    `default` decides about tools that no list names. `approvers`: who approves, the owner of the task or
    callers with this scope.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    default: Decision = "allow"
    approvers: str = OWNER

    def decide(self, tool: str) -> Decision:
        """Decide by the first list that names the tool: deny, approve, allow."""
        if _names(self.deny, tool):
            return "deny"
        if _names(self.approve, tool):
            return "approve"
        return "allow" if _names(self.allow, tool) else self.default

    def refusal(self, tool: str) -> str:
        """Say that the tool is denied, and what is allowed instead; empty if it is not denied."""
        if self.decide(tool) != "deny":
            return ""
        return f"the tool {tool!r} is not allowed here ({self._allowed()})"

    def _allowed(self) -> str:
        told = {"allow": [*self.allow], "approve": [*self.approve]}
        told.get(self.default, []).append("all others")
        words = {"allow": "allowed", "approve": "allowed once people approve"}
        lists = [f"{words[name]}: {', '.join(patterns)}" for name, patterns in told.items() if patterns]
        return "; ".join(lists) or "no tool is"


def refusal(guards: Iterable[GuardRules], tool: str) -> str:
    """Return what the first guard says that denies a tool; empty if none does."""
    return next(filter(None, (guard.refusal(tool) for guard in guards)), "")


def approvers_of(guards: Iterable[GuardRules], tool: str) -> str:
    """Return who approves calls of a tool; empty if no guard wants an approval."""
    return strictest(guard.approvers for guard in guards if guard.decide(tool) == "approve")


def strictest(approvers: Iterable[str]) -> str:
    """Return the first scope among those who are to approve, else the owner; empty if there is nobody."""
    asked = list(approvers)
    return next((each for each in asked if each != OWNER), OWNER if asked else "")


def _names(patterns: Sequence[str], tool: str) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
