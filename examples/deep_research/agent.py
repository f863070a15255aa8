"""Deep research: an editor splits a question up, readers work on it at once, and each claim has a source."""

from datetime import timedelta

from corpus_search import Passage, find_quotation, lines_of
from corpus_search import search as search_corpus
from pydantic import BaseModel, Field

from everloop import Agent, Limits, ToolContext, prompt, sub_agent, tool, tools


class Quotation(BaseModel):
    """Where something stands."""

    document: str
    quote: str = Field(min_length=20, description="At least 20 characters, word for word")


class Claim(BaseModel):
    """A sentence of the report, and what it rests on."""

    sentence: str
    quotations: list[Quotation] = Field(min_length=1)


@tool(idempotent=True)
def search(words: str) -> list[Passage]:
    """Search the corpus for lines that have most of these words."""
    return search_corpus(words)


@tool(idempotent=True)
def read(document: str) -> str:
    """Read a document."""
    return "\n".join(f"{passage.line}: {passage.text}" for passage in lines_of(document))


@tool(idempotent=True)
async def publish(title: str, claims: list[Claim], open_questions: list[str], context: ToolContext) -> str:
    """Publish the report.

    Args:
        claims: What was found out, in the order in which it is to be read.
        open_questions: What the corpus does not answer, or where documents contradict each other.
    """
    text = report(title, claims, open_questions)
    await context.artifacts.write_file("report", text, media_type="text/markdown", filename="report.md")
    return "published as artifact report"


def report(title: str, claims: list[Claim], open_questions: list[str]) -> str:
    """Write the report, with the place of each quotation.

    Raises:
        ValueError: a quotation is not in its document.
    """
    sources: list[str] = []
    lines = [f"# {title}", ""]
    for claim in claims:
        numbers: list[str] = []
        for each in claim.quotations:
            line = find_quotation(each.document, each.quote)
            if line is None:
                raise ValueError(
                    f"{each.quote!r} does not stand in {each.document}: read it again, and quote it word for "
                    "word, or leave the claim out"
                )
            sources.append(f"{each.document}, line {line}: “{' '.join(each.quote.split())}”")
            numbers.append(f"[{len(sources)}]")
        lines.append(f"{claim.sentence} {''.join(numbers)}\n")
    lines += ["## Open questions", "", *(f"- {each}" for each in open_questions or ["none"]), ""]
    lines += ["## Sources", "", *(f"{number}. {each}" for number, each in enumerate(sources, start=1)), ""]
    return "\n".join(lines)


reader = Agent(
    id="reader",
    name="Reader",
    description="Answers one narrow question from the corpus.",
    plugins=[
        prompt(
            "Answer the question from the corpus alone. Search with several wordings, and read what you "
            "quote from. For each finding give the document and a quotation, word for word. Say what you did "
            "not find."
        ),
        tools(search, read),
    ],
    limits=Limits(iterations=12),
)

editor = Agent(
    id="research",
    name="Research",
    description="Answers questions from a corpus, with a source for each claim.",
    plugins=[
        prompt(
            "Split the question up into two to five narrow ones, and give each to a reader, all of them at "
            "once. Ask further readers where findings contradict each other or something is missing. Then "
            "publish a report in which each claim has quotations, and answer in three sentences."
        ),
        sub_agent("reader", "Gives a reader one narrow question. A reader knows nothing but the question."),
        tools(publish),
    ],
    limits=Limits(iterations=20, sub_agents=20, tokens=1_000_000, wall_clock=timedelta(hours=1)),
)

agents = [editor, reader]
