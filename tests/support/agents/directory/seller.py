"""An agent as users put one into a directory: a plugin of its own, prompts written anew, and a budget."""

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta

from everloop import Agent, HookContext, NeedsApproval, Plugin, Veto, async_prompt, budget, tool, tools
from everloop.workflows.contract.messages import ToolCall
from tests.support.agents.marks import append_line, until_open


@tool(idempotent=True, timeout=timedelta(seconds=60))
async def sell(goods: str, ledger: str, gate: str) -> str:
    """Write a line into a ledger at once, which may be done again, then wait for a gate file."""
    await asyncio.to_thread(append_line, ledger, goods)
    await until_open(gate)
    return f"sold {goods}"


@dataclass(kw_only=True, eq=False)
class Counter(Plugin):
    """Notes with the goods which task sells them; gold is not sold."""

    async def before_tool(
        self, context: HookContext, call: ToolCall
    ) -> ToolCall | Veto | NeedsApproval | None:
        arguments = json.loads(call.arguments)
        if arguments["goods"] == "gold":
            return Veto("gold is not for sale")
        noted = {**arguments, "goods": f"{arguments['goods']} by {context.task_id}"}
        return call.model_copy(update={"arguments": json.dumps(noted)})


async def count_calls(context: HookContext) -> str:
    return f"This is call {context.iteration}."


agent = Agent(
    id="seller",
    name="Seller",
    description="Sells, but no gold.",
    model="scripted",
    plugins=[Counter(), async_prompt(count_calls), tools(sell), budget(tokens=100)],
)
