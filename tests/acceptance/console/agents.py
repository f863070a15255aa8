"""An agent whose tools make all that the console shows: artifacts of all kinds, steps that take long."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta

from pydantic import BaseModel, Field, JsonValue

from everloop import (
    Agent,
    InputRequired,
    Limits,
    Skill,
    ToolContext,
    artifacts,
    prompt,
    sub_agent,
    tool,
    tools,
)
from tests.support.agents.marks import append_line, until_open

CONSOLE_AGENTS = "tests.acceptance.console.agents:agents"
STUCK_AGENTS = "tests.acceptance.console.agents:stuck_agents"
LONG = timedelta(seconds=90)
ROWS = 250

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082"
)
"""A picture of one red dot."""

PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 144]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj
4 0 obj<</Length 44>>stream
BT /F1 24 Tf 20 60 Td (A page of a PDF) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
"""


@tool(idempotent=True, timeout=LONG)
async def publish(kind: str, name: str, content: str, context: ToolContext) -> str:
    """Write an artifact of this kind and name; pictures, PDFs and rows have a content of their own."""
    written = context.artifacts
    match kind:
        case "rows":
            await written.write_rows(name, _rows(), name=name)
        case "data":
            value: JsonValue = {"name": name, "numbers": [1, 2, 3], "inner": {"text": content, "none": None}}
            await written.write_data(name, value, name=name)
        case "picture":
            await written.write_file(name, PNG, media_type="image/png", filename=f"{name}.png", name=name)
        case "pdf":
            await written.write_file(
                name, PDF, media_type="application/pdf", filename=f"{name}.pdf", name=name
            )
        case _:
            await written.write_file(name, content, media_type=kind, filename=name, name=name)
    return f"{name} is written"


def _rows() -> Iterator[dict[str, JsonValue]]:
    for number in range(1, ROWS + 1):
        yield {
            "city": f"city {number}",
            "people": number * 1000,
            "note": "<b>bold</b>" if number == 1 else "",
        }


@tool(idempotent=True, timeout=LONG)
async def count_lines(path: str, ledger: str, gate: str, context: ToolContext) -> str:
    """Mark the beginning, report progress, and wait for the gate file."""
    await context.progress(f"reading {path}")
    if ledger:
        await asyncio.to_thread(append_line, ledger, context.idempotency_key)
    await until_open(gate)
    return f"{path} has 120 lines"


@tool(needs_approval=True)
async def send_report(to: str) -> str:
    """Send the report; people approve every call."""
    return f"sent to {to}"


class Stop(BaseModel):
    """One city of a trip."""

    city: str
    nights: int = Field(ge=1)


class Trip(BaseModel):
    """Nested data that a form with fields alone cannot request."""

    name: str
    stops: list[Stop]


@tool(idempotent=True)
async def plan_trip(context: ToolContext) -> str:
    """Ask where a trip goes, and return it as JSON."""
    if not context.answers:
        raise InputRequired("Where to?", "data", schema=Trip)
    return json.dumps(context.answers[-1].value, sort_keys=True)


@tool(idempotent=True)
async def many_lines(lines: int) -> str:
    """Return so many lines."""
    return "\n".join(f"line {number}" for number in range(lines))


writer = Agent(
    id="writer",
    name="Writer",
    description="Writes what others found out.",
    model="writer",
    plugins=[prompt("Follow the script."), tools(count_lines)],
)

EXAMPLE = "How many lines has c.md?"
EVIL = '<img src=x onerror="window.harmed=1">'

agent = Agent(
    id="studio",
    name="Studio",
    description="Reads, writes and asks. Its model follows the script of a test.",
    model="scripted",
    skills=[Skill(id="count", name="Count", description="Counts lines.", examples=[EXAMPLE])],
    plugins=[
        prompt("Follow the script."),
        tools(publish, count_lines, send_report, plan_trip, many_lines),
        sub_agent("writer"),
        artifacts(),
    ],
    limits=Limits(iterations=2000),
)

evil = Agent(
    id="evil",
    name=f"{EVIL}<script>window.harmed=1</script>",
    description=f"[click](javascript:window.harmed=1) {EVIL}",
    model="scripted",
    plugins=[prompt("Follow the script.")],
)

agents = [agent, writer, evil]


@tool(idempotent=True, timeout=timedelta(minutes=30))
async def ask_bank(account: str) -> str:
    """Ask the bank, which does not answer."""
    await asyncio.Event().wait()
    return account


stuck_agents = [
    Agent(
        id="bank", name="Bank clerk", description="Asks the bank.", model="bank", plugins=[tools(ask_bank)]
    ),
    Agent(id="writer", name="Writer", description="Writes letters.", model="writer", on_model_failure="wait"),
    Agent(id="clerk", name="Clerk", description="Files invoices.", model="clerk"),
]
"""Their tasks get stuck, each in its way: a tool hangs, no model answers, a key is wrong."""
