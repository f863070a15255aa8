"""The agent's work, and the judgement of cases: a pipeline runs this before it builds an image."""

from pathlib import Path

from evaluate import CASES, evaluate
from my_agents.weather import agent

from everloop.testing import Script, StartApp, call, export

ASKS = call("temperature", city="Oslo")


async def test_it_tells_the_temperature(everloop_app: StartApp, tmp_path: Path) -> None:
    """The tool returns the temperature, and the model reports it. Such a task may become a case."""
    app = await everloop_app(agent, model=Script(ASKS, "It is 4 degrees."))

    result = await app.ask("How warm is it in Oslo?")
    case = await export(app.client, result.id, tmp_path / "oslo.json")

    assert (result.text, result.tool_calls[0].result) == ("It is 4 degrees.", "4")
    assert [made.name for made in case.expected.calls] == ["temperature"]


async def test_cases_are_judged_by_what_the_model_does() -> None:
    """Other words are as good; guessing, and asking for another city, is not."""
    assert await evaluate(Script(ASKS, "Four degrees, brr.")) == 1
    assert await evaluate(Script("It is 4 degrees.")) == 0
    assert await evaluate(Script(call("temperature", city="Rome"), "It is 17 degrees.")) == 0
    assert len(CASES) == 1
