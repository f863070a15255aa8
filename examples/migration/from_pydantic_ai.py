"""The agent of pydantic_ai.md, as an agent of Everloop."""

from dataclasses import dataclass

from pydantic import BaseModel

from everloop import Agent, HookContext, ToolContext, async_prompt, prompt, tool, tools


@dataclass
class Shop:
    """Its orders, by customer and number."""

    orders: dict[tuple[str, str], str]


class Reply(BaseModel):
    """The answer, and which order it is about."""

    text: str
    order: str | None


shop = Shop({("ann", "A-1"): "on its way"})


async def customer(context: HookContext) -> str:
    """Name the customer."""
    return f"The customer is {context.owner}."


@tool(idempotent=True)
def order_status(order: str, context: ToolContext) -> str:
    """Tell what became of an order of the customer."""
    if (context.owner, order) not in shop.orders:
        raise LookupError(f"there is no order {order}, ask for its number")
    return shop.orders[context.owner, order]


@tool(idempotent=True, needs_approval=True)
def cancel_order(order: str, context: ToolContext) -> str:
    """Cancel an order of the customer."""
    shop.orders[context.owner, order] = "cancelled"
    return "cancelled"


agent = Agent(
    id="orders",
    name="Orders",
    description="Looks after orders.",
    model="gpt-4.1-mini",
    plugins=[prompt("You look after orders."), async_prompt(customer), tools(order_status, cancel_order)],
    output=Reply,
)
