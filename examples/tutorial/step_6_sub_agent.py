"""A librarian that has a critic to ask."""

from step_2_approval import buy_book, find_book
from step_4_artifacts import check_list
from step_5_mcp import branches

from everloop import Agent, Limits, Memory, artifacts, prompt, sub_agent, tools

critic = Agent(
    id="critic",
    name="Critic",
    description="Says in two sentences what a book is like.",
    plugins=[prompt("You review books in two sentences, and give away no ending.")],
    limits=Limits(iterations=3),
)

librarian = Agent(
    id="librarian",
    name="Librarian",
    description="Finds, buys and recommends books of the town library, and checks reading lists.",
    plugins=[
        prompt("You are the librarian of a small town. Look books up, and never guess."),
        tools(find_book, buy_book, check_list),
        artifacts(),
        branches,
        sub_agent("critic", "Ask for a review of one book, by its title and author."),
    ],
    memory=Memory(max_messages=20, strategy="summary"),
)

agents = [librarian, critic]
