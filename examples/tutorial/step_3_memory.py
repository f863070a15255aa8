"""A librarian that remembers a reader."""

from step_2_approval import buy_book, find_book

from everloop import Agent, Memory, prompt, tools

agent = Agent(
    id="librarian",
    name="Librarian",
    description="Finds and buys books of the town library.",
    plugins=[
        prompt("You are the librarian of a small town. Look books up, and never guess."),
        tools(find_book, buy_book),
    ],
    memory=Memory(max_messages=20, strategy="summary"),
)
