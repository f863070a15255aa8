"""Model calls of agents whose answer is data, whose reply is a forced call, or that reply by a function."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from everloop.agents.agent import Agent, Turn
from everloop.agents.artifact_tools import artifacts
from everloop.agents.plugins import tools
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk, Thought
from everloop.workflows.contract.messages import AssistantMessage, DataPart, Part, UserMessage, text_of
from tests.support.rigs.artifacts.writer_rig import WRITER, arguments
from tests.support.rigs.model_rig import ModelRig, agent, model_rig, search
from tests.support.servers.scripted_openai import Answer, Reasoning, Refusal, Reply, Step, tool_call


class City(BaseModel):
    """A city."""

    name: str
    people: int = 0


AGENT = agent(tools(search), output=City)
PARIS = DataPart(data={"name": "Paris", "people": 2})
WRITTEN = '{"name":"Paris","people":2}'

Shown = tuple[tuple[Part, ...], bool] | None


async def shown(rig: ModelRig) -> Shown:
    """Return the answer that clients see, and its completeness."""
    response = await rig.artifact(RESPONSE_ARTIFACT)
    return response and (response.parts, response.complete)


async def test_an_answer_is_data() -> None:
    """The provider gets the schema, clients one data part, and the reply is canonical JSON."""
    gate = asyncio.Event()
    steps: list[Step] = [Reasoning("Hm."), '```json\n{"people": "2",', gate, ' "name": "Paris"}\n```']
    async with model_rig([Reply(steps)], agent=AGENT) as rig:
        running = asyncio.create_task(rig.run())
        await rig.until(lambda event: isinstance(event, Thought))
        assert await shown(rig) is None
        gate.set()
        reply = await running
        assert (reply.text, reply.refused) == (WRITTEN, "")
        assert await shown(rig) == ((PARIS,), True)
        assert len(await rig.events_of(ArtifactChunk)) == 1
        assert rig.provider.requests[0].body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "City", "schema": City.model_json_schema(), "strict": False},
        }


async def test_an_answer_that_does_not_fit_is_refused() -> None:
    """An answer that does not fit the schema is refused with a message for the model, and not shown."""
    async with model_rig([Reply(['{"name": ["Paris"]}'])], agent=AGENT) as rig:
        reply = await rig.run()
        assert reply.text == '{"name": ["Paris"]}'
        assert "- name: Input should be a valid string" in reply.refused
        assert "schema 'City'" in reply.refused
        assert await shown(rig) is None
        assert await rig.run(attempt=2) == reply
        assert len(rig.provider.requests) == 1
        assert await rig.text("response") in {"", None}


async def test_an_output_model_that_fails_ends_the_call() -> None:
    """An output model that raises ends the call, without the answer in the failure."""

    class Broken(BaseModel):
        """Fails."""

        name: str

        def model_post_init(self, context: object) -> None:
            raise RuntimeError(self.name)

    async with model_rig([Reply(['{"name": "Paris"}'])], agent=agent(output=Broken)) as rig:
        failure = await rig.fail()
        assert "'Broken' raised RuntimeError" in failure.message
        assert failure.non_retryable
        assert "Paris" not in str([failure, *await rig.events()])


@pytest.mark.parametrize("others", [[], ["Half of it"]], ids=["dead before the end", "after another one"])
async def test_a_stored_answer_is_shown_as_data(others: Sequence[str]) -> None:
    """A retry publishes a stored answer as data without a model call."""
    async with model_rig([Reply(others, ending="cut")], agent=AGENT) as rig:
        if others:
            await rig.fail(attempt=1)
        stored = AssistantMessage(text=WRITTEN)
        await rig.store(*rig.call.new)
        await rig.store_reply(stored)
        assert await rig.run(attempt=2) == stored
        assert await shown(rig) == ((PARIS,), True)
        assert len(rig.provider.requests) == len(others)


@pytest.mark.parametrize("steps", [["Well. ", tool_call("artifact_update", arguments("Doc."))], ["Well. "]])
@pytest.mark.parametrize(
    ("writer", "answer"),
    [(WRITER, "The answer."), (agent(artifacts(), output=City), WRITTEN)],
    ids=["words", "data"],
)
async def test_a_tool_that_has_to_be_called(steps: list[Step], writer: Agent, answer: str) -> None:
    """The result of a forced tool is the answer; the model's other text is neither checked nor shown."""
    async with model_rig([Reply([answer]), Reply(steps)], agent=writer) as rig:
        answered = await rig.run()
        before = await shown(rig)
        await rig.store_reply(answered)
        reply = await rig.run(rig.changed(iteration=2, length=2, new=(), tool="artifact_update"))
        request = rig.provider.requests[1]
        assert request.body["tool_choice"] == {"type": "function", "function": {"name": "artifact_update"}}
        assert request.body["parallel_tool_calls"] is False
        assert "response_format" not in request.body
        assert request.conversation[-1]["role"] == "user"
        assert (reply.text, reply.refused, len(reply.tool_calls)) == ("Well. ", "", len(steps) - 1)
        assert await shown(rig) == before
        assert await rig.text() == ("Doc." if reply.tool_calls else None)


async def test_a_forced_call_that_fails_leaves_the_answer() -> None:
    """A cut reply or a refusal after a forced call leaves the client's answer unchanged."""
    script: list[Answer] = [Reply(["The answer."]), Reply(["Well. "], ending="cut"), Refusal(401)]
    async with model_rig(script, agent=WRITER) as rig:
        call = rig.follow_up(await rig.run())
        for attempt in (1, 2):
            forced = call.model_copy(update={"length": 2, "new": (), "tool": "artifact_update"})
            await rig.fail(forced, attempt=attempt)
        assert await rig.answer() == ("The answer.", True)


# Agents that reply by a function of their own instead of a language model, and agents that decide.


async def test_a_function_stands_in_for_the_model() -> None:
    """A function gets the complete transcript, and its text is the answer.

    Neither a provider nor the function is called again.
    """
    turns: list[Turn] = []

    async def respond(turn: Turn) -> AssistantMessage:
        turns.append(turn)
        (said,) = turn.messages
        assert isinstance(said, UserMessage)
        return AssistantMessage(text=f"You said {text_of(said.parts)}.")

    async with model_rig(agent=agent(respond=respond)) as rig:
        replies = [await rig.run() for _ in range(2)]
        assert [reply.text for reply in replies] == ["You said Hi."] * 2
        assert await rig.answer() == ("You said Hi.", True)
        assert rig.provider.requests == []
        assert [turn.decides for turn in turns] == [False]


WRONG = AssistantMessage().model_copy(update={"text": 4})


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        (ValueError("no idea"), "ValueError: no idea"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError: "),
        ("Four.", "it returned a str, not an AssistantMessage"),
        (WRONG, "ValueError: it made a wrong AssistantMessage: text: Input should be a valid string"),
    ],
    ids=["error", "exit", "cancelled", "text", "number"],
)
async def test_a_function_that_fails_ends_the_call(says: Any, problem: str) -> None:  # noqa: ANN401 -- whatever a function may do
    """A function's error ends the call under a name of its own, because a retry would fail again."""

    async def respond(_: Turn) -> AssistantMessage:
        if isinstance(says, BaseException):
            raise says
        return says

    async with model_rig(agent=agent(respond=respond)) as rig:
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (failures.MODEL_REFUSED, True)
    assert failure.message.startswith(f"the agent's own function failed: {problem}")


async def test_a_deciding_call_offers_one_tool_and_shows_nothing() -> None:
    """A deciding call offers one tool and streams nothing; the model's text is the message."""
    async with model_rig([Reply(["Four."])]) as rig:
        reply = await rig.run(rig.changed(routing=True))
        tools = json.dumps(rig.provider.requests[0].body["tools"])
        assert tools.count('"function": {') == 1
        assert f'"name": "{CREATE_TASK}"' in tools
        assert "these tools can be used: search" in tools
        assert (reply.text, await rig.answer()) == ("Four.", None)
