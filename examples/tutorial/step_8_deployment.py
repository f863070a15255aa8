"""Agents of the image of the library's workers and gateways."""

from datetime import timedelta

from step_2_approval import buy_book, find_book
from step_4_artifacts import check_list
from step_5_mcp import branches
from step_6_sub_agent import critic
from step_7_structured_output import recommender

from everloop import Agent, Limits, Memory, artifacts, budget, guard, prompt, sub_agent, tools

librarian = Agent(
    id="librarian",
    name="Librarian",
    models=["openai/gpt-4.1", "openai/gpt-4.1-mini"],
    description="Finds, buys and recommends books of the town library, and checks reading lists.",
    plugins=[
        prompt("You are the librarian of a small town. Look books up, and never guess."),
        tools(find_book, buy_book, check_list),
        artifacts(),
        branches,
        sub_agent("critic", "Ask for a review of one book, by its title and author."),
        guard(approve=["buy_*"]),
        budget(cost=0.50),
    ],
    memory=Memory(max_messages=20, strategy="summary"),
    limits=Limits(iterations=20, cost=1.0, wall_clock=timedelta(days=7)),
    version="1",
)

agents = [librarian, critic, recommender]
