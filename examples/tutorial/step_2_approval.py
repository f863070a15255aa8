"""A librarian that buys books, and asks before it spends much."""

from collections.abc import Mapping
from typing import Any

from everloop import Agent, ToolContext, prompt, tool, tools

SHELF = {
    "Emma": {"author": "Jane Austen", "copies": 2},
    "Kim": {"author": "Rudyard Kipling", "copies": 0},
}


@tool(idempotent=True)
def find_book(title: str) -> dict[str, str | int]:
    """Find a book of this library.

    Args:
        title: The exact title.
    """
    if title not in SHELF:
        raise LookupError(f"no book is called {title!r}; the titles are {', '.join(SHELF)}")
    return {"title": title, **SHELF[title]}


ORDERS: dict[str, str] = {}


FREE_TO_SPEND = 30


def is_expensive(arguments: Mapping[str, Any]) -> bool:
    """Say whether somebody has to approve a purchase."""
    return arguments["price"] > FREE_TO_SPEND


@tool(needs_approval=is_expensive, idempotent=True)
def buy_book(title: str, price: float, context: ToolContext) -> str:
    """Order a book from the bookshop, for a price in euros."""
    ORDERS[context.idempotency_key] = title  # the same key again: the same order
    return f"ordered {title} for {price:.2f} euros"


agent = Agent(
    id="librarian",
    name="Librarian",
    description="Finds and buys books of the town library.",
    plugins=[
        prompt("You are the librarian of a small town. Look books up, and never guess."),
        tools(find_book, buy_book),
    ],
)
