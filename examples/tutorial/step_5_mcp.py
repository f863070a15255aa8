"""A librarian that asks other libraries, by MCP."""

import sys
from pathlib import Path

from step_2_approval import buy_book, find_book
from step_4_artifacts import check_list

from everloop import Agent, Memory, artifacts, mcp, prompt, tools

branches = mcp(
    name="branches",
    command=[sys.executable, str(Path(__file__).with_name("branches.py"))],
    tools=["branches_*"],
)

agent = Agent(
    id="librarian",
    name="Librarian",
    description="Finds and buys books of the town library, and checks reading lists.",
    plugins=[
        prompt("You are the librarian of a small town. Look books up, and never guess."),
        tools(find_book, buy_book, check_list),
        artifacts(),
        branches,
    ],
    memory=Memory(max_messages=20, strategy="summary"),
)
