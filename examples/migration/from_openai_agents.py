"""The agents of openai_agents.md, as agents of Everloop."""

from everloop import Agent, handoff, prompt, tool, tools

ORDERS = {"A-1": "on its way", "A-2": "delivered"}


@tool(idempotent=True)
def order_status(order: str) -> str:
    """Tell what became of an order."""
    return ORDERS.get(order, "unknown")


@tool(idempotent=True, needs_approval=True)
def cancel_order(order: str) -> str:
    """Cancel an order."""
    ORDERS[order] = "cancelled"
    return "cancelled"


billing = Agent(
    id="billing",
    name="Billing",
    description="Answers questions about invoices.",
    model="gpt-4.1-mini",
    plugins=[prompt("You answer questions about invoices.")],
)
orders = Agent(
    id="orders",
    name="Orders",
    description="Looks after orders.",
    model="gpt-4.1-mini",
    plugins=[
        prompt("You look after orders."),
        tools(order_status, cancel_order),
        handoff("billing", "Knows invoices."),
    ],
)

agents = [orders, billing]
