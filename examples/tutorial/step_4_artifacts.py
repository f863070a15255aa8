"""A librarian that reads files and leaves documents behind."""

from collections.abc import AsyncIterator

from step_2_approval import SHELF, buy_book, find_book

from everloop import Agent, Memory, ToolContext, artifacts, prompt, tool, tools


@tool(idempotent=True)
async def check_list(artifact_id: str, context: ToolContext) -> str:
    """Check a reading list, a text file with a title on each line, against the shelf.

    Args:
        artifact_id: The id of the file that the reader sent.
        context: What Everloop gives the tool; the model does not see it.
    """
    text = b"".join([piece async for piece in context.artifacts.read(artifact_id)]).decode()
    titles = [line.strip() for line in text.splitlines() if line.strip()]

    async def rows() -> AsyncIterator[dict[str, str | int]]:
        for number, title in enumerate(titles, start=1):
            yield {"title": title, "copies": SHELF.get(title, {}).get("copies", 0)}
            await context.progress(f"{number} of {len(titles)}")

    table = await context.artifacts.write_rows("reading-list", rows(), name="Reading list")
    return f"{table.parts[0].rows} titles are in the artifact reading-list"


agent = Agent(
    id="librarian",
    name="Librarian",
    description="Finds and buys books of the town library, and checks reading lists.",
    plugins=[
        prompt("You are the librarian of a small town. Look books up, and never guess."),
        tools(find_book, buy_book, check_list),
        artifacts(),
    ],
    memory=Memory(max_messages=20, strategy="summary"),
)
