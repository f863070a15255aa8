"""The clerk's work, on a real Temporal and a real Valkey; a script takes the place of the model."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from agent import Invoice, Invoices, Line, agent

from everloop.client import InvalidError
from everloop.testing import Script, StartApp, call

SAMPLES = Path(__file__).parent / "samples"
PAPER = Invoice(
    supplier="Harbour Paper Ltd",
    number="HP-2207",
    day=date(2026, 3, 3),
    currency="EUR",
    lines=[
        Line(text="Envelopes C5", cents=1_800),
        Line(text="Reams of paper, 80 g", cents=4_250),
        Line(text="Toner cartridges", cents=12_900),
    ],
    tax=3_790,
    total=22_740,
)
LAMPS = Invoice(
    supplier="Northlight Electric",
    number="88-0417",
    day=date(2026, 3, 9),
    currency="EUR",
    lines=[Line(text="Replacing the lamps in the stairwell", cents=31_000), Line(text="Travel", cents=4_500)],
    tax=7_100,
    total=46_200,
)
RIGHT = LAMPS.model_copy(update={"total": 42_600})


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Database of the invoices of a test."""
    monkeypatch.setenv("INVOICES_DATABASE", str(tmp_path / "invoices.db"))
    return tmp_path / "invoices.db"


def recorded(database: Path) -> list[Invoice]:
    """Return the stored invoices."""
    with closing(sqlite3.connect(database)) as connection:
        return [
            Invoice.model_validate_json(data) for (data,) in connection.execute("SELECT data FROM invoices")
        ]


async def test_a_file_becomes_data(everloop_app: StartApp, database: Path) -> None:
    """The model reads the file; its answer fits the schema; the invoice is recorded without a question."""
    script = Script(call("record", invoice=PAPER.model_dump(mode="json")), Invoices(invoices=[PAPER]))
    app = await everloop_app(agent, model=script)

    result = await app.ask("Here is one.", files=[SAMPLES / "harbour-paper.txt"])

    assert Invoices.model_validate(result.data) == Invoices(invoices=[PAPER])
    assert recorded(database) == [PAPER]
    assert "Toner cartridges          129.00" in script.requests[0].prompt


async def test_a_person_corrects_what_does_not_add_up(everloop_app: StartApp, database: Path) -> None:
    """The other invoice does not wait for that. A worker dies meanwhile; the right one is recorded, once."""
    calls = [call("record", invoice=each.model_dump(mode="json")) for each in (LAMPS, PAPER)]
    script = Script(calls, Invoices(invoices=[RIGHT, PAPER]))
    app = await everloop_app(agent, model=script, worker="process")
    files = [SAMPLES / "northlight-electric.txt", SAMPLES / "harbour-paper.txt"]

    asked = await app.ask("Here are two.", files=files)
    assert "add up to 42600 cents, its total is 46200" in asked.questions[0].text
    with pytest.raises(InvalidError, match="number"):
        await app.answer(asked, {"supplier": "Northlight Electric"})

    while not any(each.outcome for each in (await app.client.task(asked.id)).tool_calls):  # noqa: ASYNC110 -- the worker is another process
        await asyncio.sleep(0.05)
    await app.kill_worker()
    result = await app.answer(asked, RIGHT.model_dump(mode="json"))

    assert result.state == "completed"
    assert sorted(recorded(database), key=lambda each: each.number) == [RIGHT, PAPER]


async def test_a_correction_is_checked_too(everloop_app: StartApp, database: Path) -> None:
    """A correction with a wrong sum is asked about again."""
    script = Script(call("record", invoice=LAMPS.model_dump(mode="json")), Invoices(invoices=[RIGHT]))
    app = await everloop_app(agent, model=script)

    asked = await app.ask("Here is one.", files=[SAMPLES / "northlight-electric.txt"])
    again = await app.answer(asked, RIGHT.model_copy(update={"total": 42_000}).model_dump(mode="json"))
    assert "its total is 42000" in again.questions[0].text
    await app.answer(again, RIGHT.model_dump(mode="json"))

    assert recorded(database) == [RIGHT]


async def test_an_invoice_is_recorded_once(everloop_app: StartApp, database: Path) -> None:
    """The same one changes nothing, and another one of the same number is rejected."""
    other = PAPER.model_copy(update={"tax": 0, "total": 18_950})
    calls = [call("record", invoice=each.model_dump(mode="json")) for each in (PAPER, PAPER, other)]
    app = await everloop_app(agent, model=Script(*calls, Invoices(invoices=[PAPER])))

    result = await app.ask("Here are three.")

    assert [made.outcome for made in result.tool_calls] == ["ok", "ok", "error"]
    assert "another invoice HP-2207" in str(result.tool_calls[2].result)
    assert recorded(database) == [PAPER]
