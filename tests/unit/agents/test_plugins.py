"""Plugins as authors write them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everloop import Agent, HookContext, NeedsApproval, Plugin, Veto, guard, tool, tools
from everloop.agents.errors import AgentDefinitionError
from everloop.agents.hooks import HOOKS
from everloop.agents.tool import Tool, digest_of
from everloop.workflows.contract.messages import ToolCall


@pytest.mark.parametrize("method", [*HOOKS, "list_tools", "get_tool", "close"])
def test_a_hook_that_is_not_async_is_refused(method: str) -> None:
    """When the plugin is made, not when a task calls it."""

    def answer_at_once(*_: object) -> None:
        return None

    wrong = type("Wrong", (Plugin,), {method: answer_at_once})

    with pytest.raises(AgentDefinitionError, match=f"plugin 'wrong': {method} is no async method"):
        wrong()


@tool(serial=True, task_queue="gpu")
async def draw(text: str) -> str:
    """Draw."""
    return text


def test_a_digest_tells_what_the_model_is_told() -> None:
    """Not the function of the tool, and not the order of keys in its schema."""
    first = Tool(draw.function, "t", "T.", schema={"properties": {"a": {}, "b": {}}, "required": ["a"]})
    second = replace(first, schema={"required": ["a"], "properties": {"b": {}, "a": {}}})
    others = [
        replace(first, name="u"),
        replace(first, description="U."),
        replace(first, schema={"properties": {"a": {}, "b": {}}}),
    ]

    assert digest_of(first) == digest_of(second) == digest_of(replace(first, idempotent=True))
    assert len({digest_of(each) for each in (first, *others)}) == 4
    assert len(digest_of(first)) == 12


DOCS = Path(__file__).parents[3] / "docs" / "agents/plugins.md"
CONTEXT = HookContext(task_id="t", context_id="c", owner="o", agent_id="a")


class Ledger:
    """Stands for the example's own service."""

    async def is_blocked(self, account: str) -> bool:
        return account == "Eve"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"to": "Eve", "amount": 1}, Veto("Eve is blocked; tell the user so")),
        ({"to": "Ada", "amount": 101}, NeedsApproval("More than 100 EUR.")),
        ({"to": "Ada", "amount": 1, "reference": "x"}, None),
        ({"to": "Ada", "amount": 1}, '{"to": "Ada", "amount": 1, "reference": "t"}'),
    ],
    ids=["veto", "approval", "nothing", "changed"],
)
async def test_the_example_of_the_documentation_works(arguments: dict[str, object], expected: object) -> None:
    """Unchanged from its page."""
    (example,) = (
        each for each in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if "Payments" in each
    )
    names: dict[str, Any] = {"Ledger": Ledger}
    exec(example, names)  # noqa: S102 -- our own documentation

    call = ToolCall(id="call", name="pay", arguments=json.dumps(arguments))
    said = await names["payments"].before_tool(CONTEXT, call)

    assert (said.arguments if isinstance(said, ToolCall) else said) == expected
    assert names["payments"].prompts[0].text.startswith("Payments of more than 100 EUR")


def test_a_task_knows_which_tools_may_ask() -> None:
    """Operators read it at the first activity of such a call.

    The agent, the tool or a guard may need an approval.
    """
    plain = Agent(id="a", name="A", description="", plugins=[tools(draw)])
    guarded = replace(plain, plugins=[tools(draw), guard(approve=["d*"])])
    watched = replace(plain, plugins=[tools(draw), guard(deny=["x"])])

    agents = (plain, replace(plain, needs_approval=True), guarded, watched)
    assert [agent.spec.tools["draw"].asks for agent in agents] == [False, True, True, False]
