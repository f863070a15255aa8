"""The model's input on a running task, and the line made of its answer."""

import pytest

from everloop.activities.narrator.progress_summary import (
    MAX_CHARACTERS,
    ProgressSummary,
    is_enough,
    narration,
    narration_request,
)
from everloop.testing import ChatRequest, Reply, Script
from everloop.workflows.contract.events import (
    AgentInvoked,
    IterationStarted,
    Narrated,
    ProviderToolRan,
    RetryScheduled,
    StatusChanged,
    SubAgentEvent,
    TaskEvent,
    ToolCalled,
    ToolCompleted,
    ToolProgressed,
)
from everloop.workflows.contract.tasks import TaskState
from tests.unit.gateway.rendered_tasks import AT, said


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Reading the minutes", "Reading the minutes"),
        ('  "Reading the minutes."\n', "Reading the minutes"),
        ("- \u201eLiest das Protokoll.\u201c", "Liest das Protokoll"),
        ("\n\n**Reading**\nand more", "Reading"),
        ("Reading\tthe \x00 minutes", "Reading the minutes"),
        ("", ""),
        (' "." ', ""),
        ("a" * 50, "a" * 50),
        ("a" * 60, "a" * 50),
        (f"{'a' * 50} b", "a" * 50),
        (
            "Comparing the offers of all three suppliers, one by one",
            "Comparing the offers of all three suppliers, one",
        ),
        (f"Comparing {'b' * 30} - {'c' * 30}", f"Comparing {'b' * 30}"),
    ],
)
def test_an_answer_becomes_one_short_line(answer: str, expected: str) -> None:
    """At most 50 characters, cut at a word, without a model's decoration."""
    told = narration(answer, ())
    assert told == expected
    assert len(told) <= MAX_CHARACTERS


@pytest.mark.parametrize(
    ("answer", "enough"),
    [
        ("", False),
        ("\n\n", False),
        ("\nReading", False),
        ("Reading\n", False),
        ("Reading\nm", True),
        ("a" * 201, True),
    ],
)
def test_an_answer_is_enough_once_its_first_line_is_over(answer: str, *, enough: bool) -> None:
    """The rest of the model's text is not waited for."""
    assert is_enough(answer) is enough


CALLED = ToolCalled(iteration=1, call_id="c", name="search", arguments='{"query": "minutes"}')


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (IterationStarted(iteration=2, model="m"), "the model thinks about what to do next (turn 2)"),
        (CALLED, 'calls search with {"query": "minutes"}'),
        (
            ProviderToolRan(iteration=1, id="ws_1", name="web_search", status="started"),
            "web_search of the provider has started",
        ),
        (ToolProgressed(call_id="c", name="search", message="half\nway"), "search reports: half way"),
        (
            ToolCompleted(call_id="c", name="search", outcome="ok", result="secret", size=6),
            "search has ended: ok",
        ),
        (AgentInvoked(call_id="c", agent_id="writer", task_id="t/c"), "asks the agent writer"),
        (RetryScheduled(attempt=2, reason="busy"), "has to try again: busy"),
        (StatusChanged(version=1, state=TaskState.WORKING, at=AT, message=said("I look")), "says: I look"),
        (
            SubAgentEvent(path=("c",), event=CALLED.model_dump()),
            "a sub-agent: " + 'calls search with {"query": "minutes"}',
        ),
        (SubAgentEvent(path=("c",), event={"kind": "narration", "text": "Writing"}), "a sub-agent: Writing"),
    ],
    ids=str,
)
def test_what_happens_becomes_a_line(event: TaskEvent, line: str) -> None:
    """With names and arguments, as clients of the extension may read them; not with results."""
    story = ProgressSummary()
    story.take(event)
    assert list(story.lines) == [line]
    assert story.has_news


def test_sub_agents_are_called_by_their_names() -> None:
    """Also those below a sub-agent: the calls that lead to them were shown before."""
    story = ProgressSummary()
    inner = AgentInvoked(call_id="d", agent_id="painter", task_id="t/c/d")
    for event in (
        AgentInvoked(call_id="c", agent_id="writer", task_id="t/c"),
        SubAgentEvent(path=("c",), event=inner.model_dump()),
        SubAgentEvent(path=("c", "d"), event={"kind": "narration", "text": "Painting"}),
    ):
        story.take(event)
    assert list(story.lines)[1:] == ["writer: asks the agent painter", "painter: Painting"]


def test_a_story_keeps_its_newest_parts() -> None:
    """Twenty lines of at most 160 characters, and the last five narrations, which do not trigger another."""
    story = ProgressSummary()
    for n in range(30):
        story.take(CALLED.model_copy(update={"arguments": f"{n} {'a' * 1000}"}))
    story.has_news = False
    for n in range(7):
        story.take(Narrated(text=str(n)))

    assert len(story.lines) == 20
    assert story.lines[-1].startswith("calls search with 29 a")
    assert {len(line) for line in story.lines} == {160}
    assert list(story.narrations) == ["2", "3", "4", "5", "6"]
    assert not story.has_news


async def test_a_script_is_not_used_up_by_a_narrator() -> None:
    """Narrations depend on the clock, so a script could not include them."""
    request = narration_request("model", "Read", ProgressSummary())
    script = Script("Done.")
    asked = ChatRequest.model_validate({"model": request.model, "messages": list(request.messages)})
    assert (await script.say(asked), script.left) == (Reply(""), 1)
