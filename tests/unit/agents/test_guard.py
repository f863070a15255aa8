"""Calls that a guard allows: by the names of tools, deny before approve before allow."""

from typing import Any

import pytest

from everloop.agents.agent import Agent
from everloop.agents.errors import AgentDefinitionError
from everloop.agents.guard import guard
from everloop.agents.hooks import HookContext, NeedsApproval, Veto
from everloop.agents.plugins import Plugin
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.tasks import Decision, GuardRules, approvers_of

CONTEXT = HookContext(task_id="t", context_id="c", owner="o", agent_id="a")


async def _decision(plugin: Plugin, tool: str) -> str:
    said = await plugin.before_tool(CONTEXT, ToolCall(id="c", name=tool, arguments="{}"))
    if isinstance(said, Veto):
        return "deny"
    return "approve" if isinstance(said, NeedsApproval) else "allow"


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("read_file", "allow"),
        ("write_file", "approve"),
        ("delete_file", "deny"),
        ("write_secret", "deny"),
        ("read_costly", "approve"),
    ],
)
async def test_the_strictest_list_that_names_a_tool_decides(tool: str, expected: str) -> None:
    """Names are case-sensitive; a tool in no list is denied if that is the default."""
    plugin = guard(allow=["read_*"], approve=["write_*", "*_costly"], deny=["*_secret"], default="deny")

    assert await _decision(plugin, tool) == expected


@pytest.mark.parametrize("default", ["deny", "approve"])
async def test_the_default_decides_about_all_others(default: Decision) -> None:
    """With each default."""
    assert await _decision(guard(deny=["rm"], default=default), "other") == default


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        (guard(allow=["a"], approve=["b"], default="deny"), "allowed: a; allowed once people approve: b"),
        (guard(deny=["x"]), "allowed: all others"),
        (guard(default="deny"), "no tool is"),
    ],
    ids=["approve", "deny", "nothing"],
)
async def test_the_model_reads_what_it_may_do_instead(plugin: Plugin, expected: str) -> None:
    """It is listed beside the denied tool."""
    said = await plugin.before_tool(CONTEXT, ToolCall(id="c", name="x", arguments="{}"))

    assert said == Veto(f"the tool 'x' is not allowed here ({expected})")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({}, "it would stop nothing; give deny or approve, or default='deny'"),
        ({"deny": "rm_*"}, "deny is 'rm_*'; give a list of patterns"),
        ({"deny": ["a", " "]}, "a pattern is empty, or no text"),
        ({"deny": ["a"], "approve": ["a"]}, "'a' is given twice"),
        ({"deny": ["a"], "approvers": "tasks:write"}, "approvers is 'tasks:write'; give 'owner'"),
        ({"default": "ask"}, "default is 'ask'; choose 'allow', 'deny' or 'approve'"),
    ],
    ids=["none", "text", "empty", "twice", "scope", "default"],
)
def test_a_guard_that_makes_no_sense_is_refused(rules: dict[str, Any], problem: str) -> None:
    """In the line of its definition."""
    with pytest.raises(AgentDefinitionError, match=r"^guard: ") as refused:
        guard(**rules)

    assert problem in str(refused.value)


def test_a_task_pins_the_rules_of_its_agents_guards() -> None:
    """In the order in which they are asked."""
    later, first = guard(deny=["a"]), guard(approve=["b"], approvers="tasks:approve")
    first.priority = -1

    agent = Agent(id="a", name="A", description="", plugins=[later, first])

    assert agent.spec.guards == (
        GuardRules(approve=("b",), approvers="tasks:approve"),
        GuardRules(deny=("a",)),
    )


NO_SEND = GuardRules(deny=("send",))
OWNER_APPROVES = GuardRules(approve=("send",))
OTHERS_APPROVE = GuardRules(approve=("send",), approvers="refunds:approve")
MORE_APPROVE = GuardRules(approve=("send",), approvers="tasks:approve")


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        ((), ""),
        ((NO_SEND,), ""),
        ((NO_SEND, OWNER_APPROVES), "owner"),
        ((OWNER_APPROVES, OTHERS_APPROVE), "refunds:approve"),
        ((OTHERS_APPROVE, OWNER_APPROVES), "refunds:approve"),
        ((MORE_APPROVE, OTHERS_APPROVE), "tasks:approve"),
    ],
    ids=["none", "deny", "owner", "scope_after_owner", "scope_before_owner", "two_scopes"],
)
def test_any_guard_may_want_an_approval(guards: tuple[GuardRules, ...], expected: str) -> None:
    """The first scope of a guard wins over the owner."""
    assert approvers_of(guards, "send") == expected
