"""A reporter that a schedule starts each night: sales of the day before, and remarkable figures."""

import csv
import os
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from everloop import Agent, Limits, Memory, Retries, ToolContext, prompt, tool, tools

TIME_ZONE = ZoneInfo("Europe/Berlin")
"""Time zone of the shop: the schedule uses it, and a day begins there at midnight."""


class Sales(BaseModel):
    """The sales of a day. Amounts are in cents."""

    day: date
    pieces: dict[str, int]
    cents: dict[str, int]
    total: int


def reported_day(task_id: str) -> date:
    """Return the day before a task was due, however late it runs: its id ends with that time."""
    due = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", task_id)
    night = datetime.fromisoformat(due[0]) if due else datetime.now(UTC)
    return night.astimezone(TIME_ZONE).date() - timedelta(days=1)


@tool(
    idempotent=True,
    # The tills deliver when they have closed, which may take until the morning.
    retries=Retries(attempts=20, delay=timedelta(minutes=5), longest=timedelta(minutes=30)),
)
def sales(context: ToolContext) -> Sales:
    """Return what was sold on the day that the report is about."""
    day = reported_day(context.task_id)
    file = Path(os.environ.get("SALES_FOLDER", "data"), f"sales-{day}.csv")
    pieces, cents = Counter[str](), Counter[str]()
    with file.open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            pieces[line["article"]] += int(line["pieces"])
            cents[line["article"]] += int(line["pieces"]) * int(line["cents"])
    return Sales(day=day, pieces=dict(pieces), cents=dict(cents), total=cents.total())


@tool(idempotent=True)
async def publish(report: str, context: ToolContext) -> str:
    """Publish the report, as Markdown. Publishing it again replaces it."""
    artifact_id = f"report-{reported_day(context.task_id)}"
    await context.artifacts.write_file(
        artifact_id, report, media_type="text/markdown", filename=f"{artifact_id}.md"
    )
    return f"published as {artifact_id}"


agent = Agent(
    id="nightly-report",
    name="Nightly report",
    description="Reports what was sold the day before.",
    plugins=[
        prompt(
            "Write the report on yesterday's sales: the total, the three best articles, and what stands out "
            "against the reports before. Numbers come from the tool `sales`; work none out yourself. Publish "
            "it, and answer with one sentence. If there are no sales, publish that the tills delivered none."
        ),
        tools(sales, publish),
    ],
    memory=Memory(max_messages=20, strategy="summary"),
    # A failing night ends before the next one begins: it would prevent its start.
    limits=Limits(iterations=10, wall_clock=timedelta(hours=12)),
)
