"""The companion's work, on a real Temporal and a real Valkey; a function takes the place of the model."""

from pathlib import Path

import facts
import pytest
from agent import agent

from everloop.testing import ChatRequest, FunctionModel, Script, StartApp, call

SUMMARY = "The user, Ann, told of her garden."


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Database of the facts of a test."""
    monkeypatch.setenv("FACTS_DATABASE", str(tmp_path / "facts.db"))


def said_in(request: ChatRequest) -> str:
    """Return the text of a model request."""
    return "\n".join(message.text for message in request.messages)


async def test_what_was_said_long_ago_is_summed_up(everloop_app: StartApp) -> None:
    """The newest messages are recalled in full, earlier ones as a summary: prompts stay short."""
    prompts: list[str] = []

    def model(request: ChatRequest) -> str:
        if not request.tool_names:  # the summary is asked for without tools
            return SUMMARY
        prompts.append(said_in(request))
        return f"I hear: {request.prompt}"

    app = await everloop_app(agent, model=FunctionModel(model))
    first = await app.ask("Day 1 in my garden.")
    day = 1
    while SUMMARY not in prompts[-1]:  # the answer does not wait for a summary, which follows it
        day += 1
        await app.ask(f"Day {day} in my garden.", context_id=first.context_id)

    assert day > 6
    assert f"Day {day - 1} in my garden." in prompts[-1]
    assert "Day 1 in my garden." not in prompts[-1]


async def test_facts_are_known_in_other_conversations(everloop_app: StartApp) -> None:
    """Also after its worker was killed, until the user asks to forget them."""
    fact = "Ann's daughter Mia plays the cello."
    script = Script(
        call("remember", fact=fact),
        "How nice!",
        "The cello.",
        call("forget", fact=fact),
        "Done.",
        "I do not know.",
    )
    app = await everloop_app(agent, model=script, worker="process")

    await app.ask("My daughter Mia plays the cello.")
    await app.kill_worker()
    await app.ask("What does Mia play?")
    assert fact in said_in(script.requests[2])

    await app.ask("Forget that.")
    await app.ask("What does Mia play?")
    assert fact not in said_in(script.requests[-1])


def test_facts_are_those_of_their_owner() -> None:
    """Facts of other users stay hidden; a fact that is stored twice is one."""
    facts.add("ann", "Likes tea.")
    facts.add("ann", "Likes tea.")

    assert (facts.of("ann"), facts.of("ben")) == (["Likes tea."], [])
    assert not facts.remove("ben", "Likes tea.")
