"""A support desk: it looks up orders and refunds them; a supervisor has to approve large refunds."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

import httpx
from pydantic import Field, JsonValue
from shop import ORDERS, Order, payments

from everloop import Agent, Retries, ToolContext, prompt, tool, tools

SMALL = 5_000
"""Cents that the desk refunds without approval."""

SUPERVISORS = "refunds:approve"
"""The scope of supervisors: `everloop keys add NAME --scopes refunds:approve`."""


def is_large(arguments: Mapping[str, JsonValue]) -> bool:
    """Return whether a supervisor has to approve a refund."""
    cents = arguments["cents"]
    return not isinstance(cents, int) or cents > SMALL


def order_of(customer: str, order: str) -> Order:
    """Return an order, if it is the customer's."""
    found = ORDERS.get(order)
    if not found or found.customer != customer:  # the same text, so that orders of others stay unknown
        raise LookupError(f"{customer} has no order {order}")
    return found


@tool(idempotent=True)
def find_order(order: str, context: ToolContext) -> Order:
    """Look up an order of the customer."""
    return order_of(context.owner, order)


@tool(idempotent=True, needs_approval=is_large, approvers=SUPERVISORS, retries=Retries())
async def refund(
    order: str, cents: Annotated[int, Field(gt=0)], reason: str, context: ToolContext
) -> dict[str, JsonValue]:
    """Give money back for an order of the customer.

    Args:
        order: Such as A-1001.
        cents: How much, in cents; not more than the order cost.
        reason: Why, in a sentence. The supervisor reads it.
    """
    order_of(context.owner, order)
    async with httpx.AsyncClient(base_url=payments()) as http:
        answer = await http.post(
            "/refunds",
            json={"order": order, "cents": cents},
            # The same for every attempt of this call: the provider recognizes it after a crash, and pays once
            headers={"Idempotency-Key": context.idempotency_key},
        )
    if answer.status_code == HTTPStatus.CONFLICT:
        return {"refused": answer.json()["error"]}  # final, so not a failure that a retry could mend
    answer.raise_for_status()
    return answer.json()


agent = Agent(
    id="support-desk",
    name="Support desk",
    description="Answers questions about orders, and gives money back.",
    plugins=[
        prompt(
            "You work at the support desk of a shop. Look an order up before you say anything about it. "
            "Refund what arrived broken or not at all. If a refund is turned down, tell the customer why, "
            "and do not try again with another amount."
        ),
        tools(find_order, refund),
    ],
)
