"""What who watches the demo sees of an answer."""

import pytest

from everloop.client import StatusChanged, TaskState, TextDelta
from everloop.deploy.demo.screen import Screen


def test_an_answer_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It streams; a draft before it was withdrawn."""
    screen = Screen()
    for text, starts_over in (("The dra", False), ("", True), ("The ", False), ("end.", False)):
        screen.show(TextDelta(text=text, starts_over=starts_over))
    screen.show(StatusChanged(state=TaskState.COMPLETED))
    screen.show(TextDelta(text="Another task."))

    said = capsys.readouterr().out.splitlines()
    assert said == ["The dra", "The end.", "[completed]", "Another task."]


def test_a_draft_that_was_interrupted_is_written_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A killed worker leaves half a sentence; the next one goes on with it below what happened meanwhile."""
    screen = Screen()
    screen.show(TextDelta(text="The "))
    screen.alarm("killed")
    screen.show(StatusChanged(state=TaskState.WORKING))
    screen.show(TextDelta(text="end."))

    assert capsys.readouterr().out.splitlines()[-2:] == ["[working]", "The end."]


def test_an_answer_that_became_another_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """What was streamed is not what counts."""
    screen = Screen()
    for text in ("The end", "Another end."):
        screen.show(TextDelta(text=text, starts_over=True))

    assert capsys.readouterr().out.splitlines() == ["The end", "Another end."]
