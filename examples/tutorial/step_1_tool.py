"""A librarian that looks books up."""

from everloop import Agent, prompt, tool, tools

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


agent = Agent(
    id="librarian",
    name="Librarian",
    description="Finds books of the town library.",
    plugins=[
        prompt("You are the librarian of a small town. Look books up, and never guess."),
        tools(find_book),
    ],
)
