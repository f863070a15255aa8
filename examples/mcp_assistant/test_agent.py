"""The assistant's work, with both servers as processes; a script takes the place of the model."""

import json
from pathlib import Path

import pytest
from agent import agent
from pydantic import JsonValue

from everloop.testing import Script, StartApp, call

DENTIST: dict[str, JsonValue] = {"title": "Dentist", "start": "2026-07-01T09:00:00"}
TOOLS = {
    "calendar_add_event",
    "calendar_list_events",
    "notes_delete_note",
    "notes_list_notes",
    "notes_read_note",
    "notes_write_note",
}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory and storage of the servers."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def list_files(directory: Path) -> list[Path]:
    """Return all files of a directory."""
    return sorted(file for file in directory.rglob("*") if file.is_file())


async def test_tools_of_both_servers_work_together(everloop_app: StartApp, directory: Path) -> None:
    """The model is offered all tools, each with the prefix of its server; it reads their errors."""
    looks = [call("calendar_list_events", day="2026-07-01"), call("notes_list_notes")]
    writes = [call("notes_write_note", title=title, text="Dentist.") for title in ("July", "../calendar")]
    script = Script(looks, writes, "Noted.")
    (directory / "calendar.json").write_text(json.dumps([DENTIST]))
    app = await everloop_app(agent, model=script)

    result = await app.ask("What is on the first of July? Make a note of it.")

    assert script.requests[0].tool_names >= TOOLS
    assert [made.outcome for made in result.tool_calls] == ["ok", "ok", "ok", "error"]
    assert "Dentist" in str(result.tool_calls[0].result)
    assert "no note can be called '../calendar'" in str(result.tool_calls[3].result)
    assert list_files(directory) == [directory / "calendar.json", directory / "notes" / "July.md"]


async def test_what_changes_the_calendar_is_approved_first(everloop_app: StartApp, directory: Path) -> None:
    """Both servers die with the worker meanwhile; another worker starts them, and the event stands once."""
    script = Script(call("calendar_add_event", event=DENTIST), "It stands in the calendar.")
    app = await everloop_app(agent, model=script, worker="process")

    asked = await app.ask("Dentist on the first of July at nine.")
    assert (asked.questions[0].tool, (directory / "calendar.json").exists()) == ("calendar_add_event", False)
    await app.kill_worker()
    result = await app.approve(asked)

    assert result.text == "It stands in the calendar."
    assert json.loads((directory / "calendar.json").read_text()) == [DENTIST]


async def test_a_server_says_what_has_to_be_approved(everloop_app: StartApp, directory: Path) -> None:
    """`delete_note` is destructive according to its server; a no keeps the note, and the model reads it."""
    (directory / "notes").mkdir()
    (directory / "notes" / "July.md").write_text("Nothing planned.")
    app = await everloop_app(agent, model=Script(call("notes_delete_note", title="July"), "It stays."))

    asked = await app.ask("Tidy up.")
    result = await app.approve(asked, approved=False, note="I need it.")

    assert (result.tool_calls[0].outcome, result.text) == ("rejected", "It stays.")
    assert (directory / "notes" / "July.md").exists()
