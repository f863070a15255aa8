"""What who watches the demo sees of an answer."""

import pytest

from everloop.deploy.demo.conversation import StatusArrived, TextArrived
from everloop.deploy.demo.screen import Screen


def test_an_answer_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It streams, and at its end comes whole once more; a draft before it was withdrawn."""
    screen = Screen()
    for text, append in (("The dra", False), ("", False), ("The ", False), ("end.", True)):
        screen.show(TextArrived(text, append))
    screen.show(TextArrived("The end.", append=False))
    screen.show(StatusArrived("completed", ""))

    assert capsys.readouterr().out.splitlines() == ["The dra", "The end.", "[completed]"]


def test_an_answer_that_became_another_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """What was streamed is not what counts."""
    screen = Screen()
    for text in ("The end", "Another end."):
        screen.show(TextArrived(text, append=False))

    assert capsys.readouterr().out.splitlines() == ["The end", "Another end."]
