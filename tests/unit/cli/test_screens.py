"""Terminal output: `everloop dev` while files are saved, and calls of a task that is followed."""

import asyncio
import sys
import threading
from contextlib import aclosing
from pathlib import Path

import pytest
from pydantic import JsonValue

from everloop.cli.author.dev import saved_files
from everloop.cli.author.live_log import rendered
from everloop.cli.author.project import Project
from everloop.cli.client.message_files import save_parts
from everloop.cli.client.screen import FRAMES, Screen
from everloop.client import (
    Client,
    OtherEvent,
    Part,
    StatusChanged,
    TaskState,
    TextDelta,
    ToolCall,
    ToolCallEnded,
    ToolCallStarted,
)


def test_a_warning_stands_apart_from_its_fields() -> None:
    """The end of the words is visible, and so is the start of a traceback."""
    record = {"event": "model call failed", "level": "warning", "attempt": 2, "context_id": "c"}
    line = rendered({**record, "exception": "Traceback …\n  File …\nKeyError: no key"})

    assert line is not None
    assert line.plain == "  ! model call failed   attempt=2 exception=KeyError: no key"


@pytest.mark.parametrize(
    "event", ["tool failed", "Completing activity as failed", "another version of the agent continues"]
)
def test_what_another_line_says_is_shown_once(event: str) -> None:
    """The reason of a failed call, which Temporal's library repeats.

    The note that tasks go on with saved code.
    """
    assert rendered({"event": event, "level": "warning", "exception": "Traceback …"}) is None


@pytest.mark.parametrize(
    ("arguments", "shown"), [(None, "✓ buy → bought"), ({"title": "Dune"}, '✓ buy(title="Dune") → bought')]
)
def test_a_call_whose_arguments_are_not_known_has_no_empty_ones(
    arguments: dict[str, JsonValue] | None, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer to an approval starts the stream there: earlier calls are not sent again."""
    Screen().show(ToolCallEnded(call=ToolCall(id="1", name="buy", arguments=arguments, result="bought")))

    assert capsys.readouterr().err.strip() == shown


def test_a_call_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The stream of each answer begins with the calls so far."""
    screen, ended = (
        Screen(),
        ToolCallEnded(call=ToolCall(id="1", name="buy", arguments=None, result="bought")),
    )
    for _ in range(2):
        screen.show(ended)

    assert capsys.readouterr().err.splitlines() == ["✓ buy → bought"]


def test_a_retry_of_the_model_is_told_by_the_status_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """It has reason and time; a tool's or a sub-agent model's retry has no status."""
    screen = Screen()
    for path, data in (
        ((), {"reason": "it is busy"}),
        ((), {"reason": "no answer", "call_id": "1"}),
        (("2",), {"reason": "too many"}),
    ):
        screen.show(OtherEvent(kind="retry", data=data, path=path))

    said = capsys.readouterr().err.splitlines()
    assert said == ["↻ the tool runs again: no answer", "↻ the model is asked again: too many"]


async def test_a_draft_that_was_interrupted_is_written_whole_and_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed worker leaves half a sentence; the next one continues it below the lines in between."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    screen, working = Screen(), TaskState.WORKING
    screen.show(TextDelta(text="I look "))
    screen.say("killed")
    screen.show(OtherEvent(kind="resumed", data={"attempt": 2}))
    screen.show(StatusChanged(state=working))
    screen.show(TextDelta(text="it up."))
    screen.show(StatusChanged(state=working, text="I look it up."))
    screen.show(TextDelta(text="It is ", starts_over=True))
    screen.show(StatusChanged(state=working))
    screen.show(TextDelta(text="4."))
    screen.pause()

    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["I look ", "I look it up.", "It is 4."]
    assert shown.err.splitlines() == ["killed", "↻ the model is asked again, attempt 2"]


async def test_what_is_live_is_drawn_where_lines_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thread of its own would draw during a print: a piece of either could be left over."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    before, screen = threading.active_count(), Screen()
    screen.show(ToolCallStarted(call_id="1", name="buy"))
    assert threading.active_count() == before
    drawn = ""
    async with asyncio.timeout(30):
        while len({frame for frame in FRAMES if frame in drawn}) < 2:
            await asyncio.sleep(0.01)
            drawn += capsys.readouterr().err
    screen.pause()


async def test_files_are_watched_before_agents_are_loaded(tmp_path: Path) -> None:
    """The line comes first.

    A file that is saved between two reads of names is in the second one.
    """
    async with aclosing(saved_files(Project(tmp_path, "agent.py"))) as changes:
        assert await anext(changes) == frozenset()
        (tmp_path / "agent.py").write_text("agent = None")

        assert await anext(each async for each in changes if each) == {"agent.py"}


async def test_parts_of_one_name_get_files_of_their_own(tmp_path: Path) -> None:
    """Also if files may be overwritten, which applies to existing files alone."""
    (tmp_path / "table.json").write_text("old")
    parts = [Part(data=[1]), Part(data=[2])]
    async with Client("http://127.0.0.1:9") as client:
        again = await save_parts(client, parts, "table", tmp_path, overwrites=True, asks=False)
        beside = await save_parts(client, parts[:1], "table", tmp_path, asks=False)
    assert [path.name for path in again + beside] == ["table.json", "table-2.json", "table-3.json"]
    assert [path.read_text() for path in again + beside] == ["[1]", "[2]", "[1]"]
