"""Getting a reply when the first model is unavailable, or the prompt is too long."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import Compaction, ModelSettings
from everloop.workflows.contract.messages import Usage, text_of
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.tasks import AgentSpec, TaskState
from everloop.workflows.turns import model_turn
from tests.support.fakes.ports import FakePorts, Script, ScriptedModel, answer, asks, fails
from tests.workflows.conftest import Handle, StartTask, current_details, failure_of, run, until_canceled

MODELS = AgentSpec(
    id="agent", model="first", fallback_models=("second", "third"), settings=ModelSettings(effort="high")
)
WAITS = AgentSpec(id="agent", on_model_failure="wait")
COMPACTS = AgentSpec(id="agent", compaction=Compaction())


async def model_call_lines(handle: Handle) -> AsyncIterator[str]:
    """Yield the line of each model call in Temporal's UI."""
    async for event in handle.fetch_history_events():
        if event.activity_task_scheduled_event_attributes.activity_type.name == "call_model":
            yield WIRE_DATA_CONVERTER.payload_converter.from_payload(event.user_metadata.summary, str)


@pytest.mark.parametrize("failure", [failures.MODEL_UNAVAILABLE, failures.MODEL_REFUSED])
async def test_the_next_model_stands_in(start_task: StartTask, failure: str) -> None:
    """It reads the reason, subscribers get a warning, operators see it, and it stays.

    Settings hold for all.
    """
    ports = FakePorts(ScriptedModel(fails(failure), asks(("a", "x")), answer("done")))
    async with start_task(ports, MODELS) as handle:
        result = await handle.result()
        lines = [each async for each in model_call_lines(handle)]
    assert result.excerpt == "done"
    assert lines == [
        "iteration 1 · first · effort high · 1 message",
        "iteration 1 · second · effort high · 1 message",
        "iteration 2 · second · effort high · 3 messages",
    ]
    assert [call.model for call in ports.model.calls] == ["first", "second", "second"]
    assert [call.settings for call in ports.model.calls] == [MODELS.settings] * 3
    first, second, third = ports.model.calls
    assert (first.tries, second.tries, third.tries) == (0, 1, 0)
    assert second.warning == "the provider said no; the task goes on with model 'second'"
    assert (first.warning, third.warning) == ("", "")
    assert second.statuses == first.statuses


AWAY, REFUSED = fails(failures.MODEL_UNAVAILABLE), fails(failures.MODEL_REFUSED)


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ([AWAY, asks(("a", "x")), AWAY, answer("done")], ["first", "second"] * 2),
        ([REFUSED, asks(("a", "x")), answer("done")], ["first", "second", "second"]),
        ([AWAY, REFUSED, asks(("a", "x")), answer("done")], ["first", "second", "third", "first"]),
        ([REFUSED, AWAY, asks(("a", "x")), answer("done")], ["first", "second", "third", "second"]),
        ([fails(failures.CONTEXT_TOO_LONG), asks(("a", "x")), answer("done")], ["first", "second", "second"]),
    ],
    ids=["away", "refused", "away, refused", "refused, away", "too long"],
)
async def test_a_model_that_was_away_is_asked_again(
    start_task: StartTask, script: list[Script], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first turn after the delay, unless it refused. Each call has a flag for a further model."""
    monkeypatch.setattr(model_turn, "COME_BACK", timedelta(0))
    ports = FakePorts(ScriptedModel(*script))
    await run(start_task(ports, MODELS))
    assert [call.model for call in ports.model.calls] == asked
    assert [call.has_fallback for call in ports.model.calls] == [name != "third" for name in asked]


@pytest.mark.parametrize("wait", [timedelta(0), timedelta(hours=1)])
async def test_new_runs_know_which_model_was_away(
    start_long_task: StartTask, wait: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the next attempt is carried, too."""
    monkeypatch.setattr(model_turn, "COME_BACK", wait)
    turns = [asks(*((f"c{n}{each}", "x") for each in range(8))) for n in range(5)]
    script: list[Script] = [each for turn in turns for each in (AWAY, turn)] if not wait else [AWAY, *turns]
    ports = FakePorts(ScriptedModel(*script, answer("done")))
    await run(start_long_task(ports, MODELS))
    asked = [call.model for call in ports.model.calls]
    assert asked == (["first", "second"] * 5 + ["first"] if not wait else ["first", *["second"] * 6])
    assert len({call.task.run_id for call in ports.model.calls}) > 2


async def test_a_task_waits_for_its_operator(start_task: StartTask) -> None:
    """It stays working, shows the reason, and goes on at the signal; an early signal changes nothing."""
    ports = FakePorts(ScriptedModel(fails(failures.MODEL_REFUSED), answer("done")))

    async with start_task(ports, WAITS) as handle:
        await handle.signal(AgentTask.resume)
        await ports.publish.entered.wait()
        waiting = await handle.query(AgentTask.progress)
        details = await current_details(handle)
        await handle.signal(AgentTask.resume)
        result = await handle.result()

    assert waiting.phase == "waiting"
    for words in (
        "Waits for an operator.",
        "the provider said no",
        "Signal `resume`, without input, to go on.",
    ):
        assert words in details
    assert result.excerpt == "done"
    first, status, _ = ports.publish.statuses
    assert first.version == 1  # the failed call may not have published its status
    assert status.state is TaskState.WORKING
    assert status.message
    assert "the provider said no" in text_of(status.message.parts)
    _, again = ports.model.calls
    assert [(each.version, each.resumed) for each in again.statuses] == [(status.version + 1, "operator")]
    assert (first.resumed, status.resumed) == (None, None)
    assert again.tries == 1


async def test_a_waiting_task_is_cancelled(start_task: StartTask) -> None:
    """A task need not be resumed to be cancelled."""
    ports = FakePorts(ScriptedModel(fails(failures.MODEL_REFUSED)))
    async with start_task(ports, WAITS) as handle:
        await ports.publish.entered.wait()
        await handle.cancel()
        await until_canceled(handle)
    assert ports.publish.statuses[-1].state is TaskState.CANCELED


async def test_a_prompt_that_is_too_long_is_compacted_once(start_task: StartTask) -> None:
    """The summary is in the transcript, with its range; then the same question is asked again."""
    replies = [asks((f"c{n}", "x")) for n in range(4)]
    ports = FakePorts(ScriptedModel(*replies, fails(failures.CONTEXT_TOO_LONG), answer("done")))
    async with start_task(ports, COMPACTS) as handle:
        result = await handle.result()
        page = await handle.query(AgentTask.transcript, 0)
    (compaction,) = ports.model.compactions
    assert (compaction.length, compaction.compaction.strategy) == (9, "window")
    assert 1 < compaction.end < 9
    assert page.messages[compaction.end].role == "assistant"
    assert page.messages[9].role == "summary"
    assert [call.length for call in ports.model.calls[-2:]] == [9, 10]
    assert result.usage.input_tokens == 1


async def test_a_prompt_that_stays_too_long_ends_the_task(start_task: StartTask) -> None:
    """The prompt is compacted once; a second refusal is final."""
    too_long = [fails(failures.CONTEXT_TOO_LONG) for _ in range(2)]
    ports = FakePorts(ScriptedModel(asks(("a", "x")), asks(("b", "x")), *too_long))
    async with start_task(ports, COMPACTS) as handle:
        failed = await failure_of(handle)
    assert failed.type == failures.CONTEXT_TOO_LONG
    assert len(ports.model.compactions) == 1


async def test_a_prompt_over_its_budget_is_compacted_first(start_task: StartTask) -> None:
    """The provider's own count decides; each reply replaces it."""
    agent = AgentSpec(id="agent", compaction=Compaction(strategy="summary", prompt_tokens=1000))
    small, large = Usage(input_tokens=500), Usage(input_tokens=999, output_tokens=1)
    replies = [
        asks((f"c{n}", "x")).model_copy(update={"usage": usage})
        for n, usage in enumerate([small, large, small])
    ]
    ports = FakePorts(ScriptedModel(*replies, answer("done")))
    await run(start_task(ports, agent))
    (compaction,) = ports.model.compactions
    assert (compaction.iteration, compaction.compaction.strategy) == (3, "summary")


async def test_a_summary_that_no_model_writes_waits_for_an_operator(start_task: StartTask) -> None:
    """As for a reply, if its agent says so: meanwhile no message is left out."""
    spec = Compaction(strategy="summary", prompt_tokens=1000)
    asking = [asks((f"c{n}", "x")).model_copy(update={"usage": Usage(input_tokens=1000)}) for n in range(2)]
    ports = FakePorts(ScriptedModel(*asking, answer("done")))
    ports.model.summary_failures = [AWAY]
    async with start_task(ports, WAITS.model_copy(update={"compaction": spec})) as handle:
        await ports.publish.entered.wait()
        assert (await handle.query(AgentTask.progress)).waits_for_resume == "the provider said no"
        await handle.signal(AgentTask.resume)
        await handle.result()
    assert [call.waits for call in ports.model.compactions] == [True, True]
    assert [status.resumed for status in ports.model.calls[-1].statuses] == ["operator"]


async def test_another_model_sums_up_where_one_is_away(start_task: StartTask) -> None:
    """It also gives the next reply, and subscribers get the reason."""
    compaction = Compaction(strategy="summary", prompt_tokens=1000)
    agent = MODELS.model_copy(update={"compaction": compaction})
    usages = [Usage(input_tokens=500), Usage(input_tokens=1000)]
    replies = [asks((f"c{n}", "x")).model_copy(update={"usage": usage}) for n, usage in enumerate(usages)]
    ports = FakePorts(ScriptedModel(*replies, answer("done")))
    ports.model.summary_failures = [AWAY]
    await run(start_task(ports, agent))
    assert [(call.model, call.has_fallback) for call in ports.model.compactions] == [
        ("first", True),
        ("second", True),
    ]
    last = ports.model.calls[-1]
    assert (last.model, last.warning) == (
        "second",
        "the provider said no; the task goes on with model 'second'",
    )
