"""The graph of langgraph.md, as an agent of Everloop."""

from everloop import Agent, InputRequired, ToolContext, prompt, tool, tools

ORDERS = {"A-1": "on its way"}


@tool(idempotent=True)
def order_status(order: str) -> str:
    """Tell what became of an order."""
    return ORDERS.get(order, "unknown")


@tool(idempotent=True)
def cancel_order(order: str, context: ToolContext) -> str:
    """Cancel an order."""
    if context.answer is None:
        raise InputRequired(f"Cancel {order}?", "confirmation")
    if not context.answer:
        return "not cancelled"
    ORDERS[order] = "cancelled"
    return "cancelled"


agent = Agent(
    id="orders",
    name="Orders",
    description="Looks after orders.",
    model="gpt-4.1-mini",
    plugins=[prompt("You look after orders."), tools(order_status, cancel_order)],
)
