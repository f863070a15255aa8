"""A recommender: its answer is data."""

from pydantic import BaseModel, Field
from step_2_approval import find_book
from step_6_sub_agent import critic, librarian

from everloop import Agent, prompt, sub_agent, tools


class Recommendation(BaseModel):
    """A book for a reader."""

    title: str
    reason: str = Field(description="one sentence")
    copies: int = Field(ge=0, description="how many are on the shelf")


recommender = Agent(
    id="recommender",
    name="Recommender",
    description="Recommends one book, as data.",
    plugins=[
        prompt("You recommend one book that is on the shelf."),
        tools(find_book),
        sub_agent("critic"),
    ],
    output=Recommendation,
)

agents = [librarian, critic, recommender]
