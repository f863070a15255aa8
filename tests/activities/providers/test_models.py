"""Models of several providers: each with its own terms and its means of structured output."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta

import pytest
from pydantic import BaseModel

from everloop.activities.model.clients import FINAL_ANSWER
from everloop.agents.plugins import tools
from everloop.models.catalogue import ModelEntry
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.events import IterationStarted, ToolCalled
from everloop.workflows.contract.failures import MODEL_UNAVAILABLE
from tests.support.rigs.model_rig import QUESTION, ModelRig, agent, model_rig, provider_at, search
from tests.support.servers.scripted_openai import (
    Answer,
    Reasoning,
    ReceivedRequest,
    Refusal,
    Reply,
    ScriptedOpenAI,
    tool_call,
)

OPAQUE = "c2lnbmF0dXJl"


async def test_a_fallback_may_be_at_another_provider() -> None:
    """A fallback at another provider gets the same task with its own address, key and settings."""
    signed = Reply([tool_call("search"), Reasoning(OPAQUE)])
    terms = {"models": {"": ModelEntry(settings=ModelSettings(temperature=0.5, seed=1))}}
    async with (
        ScriptedOpenAI([Reply(["Here."], usage=(7, 2))]) as second,
        model_rig([signed, Refusal(503)]) as rig,
    ):
        rig.know(provider_at(second, name="office", key="sk-office", fill_message={"note": ""}, **terms))
        asking = await rig.run()
        await rig.store(asking.tool_calls[0].result("found"), start=2)
        call = rig.changed(iteration=2, length=3, new=(), has_fallback=True)
        assert (await rig.fail(call)).type == MODEL_UNAVAILABLE
        own = ModelSettings(temperature=0.1)
        answer = await rig.run(call.model_copy(update={"model": "office/qwen3", "settings": own}))

        assert (answer.text, answer.source, asking.source) == ("Here.", "office/qwen3", "openai/test-model")
        started = [event.model for event in await rig.events_of(IterationStarted)]
        assert started[-1] == "office/qwen3"
        [request] = second.requests
        assert OPAQUE in json.dumps(rig.provider.requests[1].body)
        assert OPAQUE not in json.dumps(request.body)
        assert request.headers["authorization"] == "Bearer sk-office"
        assert (request.body["model"], request.body["temperature"], request.body["seed"]) == ("qwen3", 0.1, 1)
        assert [one["note"] for one in request.conversation if one["role"] == "assistant"] == [""]


@pytest.mark.parametrize(
    ("settings", "steps", "told"),
    [
        (ModelSettings(first_token=timedelta(milliseconds=200)), [], "before its reply"),
        (ModelSettings(between_tokens=timedelta(milliseconds=200)), ["Half"], "within its reply"),
    ],
)
async def test_a_provider_may_be_silent_for_so_long(
    settings: ModelSettings, steps: list[str], told: str
) -> None:
    """A silent provider is retried or replaced after its time limit.

    The text names the stage of the silence.
    """
    async with model_rig([Reply([*steps, asyncio.Event()])]) as rig:
        failure = await rig.fail(rig.changed(settings=settings))
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert f"the provider 'openai' was silent for 0.2 s {told}" in failure.message


# Structured answers.


class City(BaseModel):
    """Where it is."""

    name: str


PARIS = '{"name":"Paris"}'


class Picky:
    """A provider that accepts one means of structured output; `by` has the means of each request."""

    def __init__(self, *takes: str, answer: Sequence[Answer]) -> None:
        self.takes = takes
        self.answer = list(answer)
        self.by: list[str] = []

    def __call__(self, request: ReceivedRequest) -> Answer:
        by = means_of(request)
        self.by.append(by)
        if by not in self.takes:
            return Refusal(400, message="response_format of this type is unavailable now; no tool_choice")
        return self.answer.pop(0)


def means_of(request: ReceivedRequest) -> str:
    if isinstance(form := request.body.get("response_format"), dict):
        return str(form["type"])
    return "tool" if FINAL_ANSWER in json.dumps(request.body.get("tools", "")) else "prompt"


SCHEMA, OBJECT = "json_schema", "json_object"


@pytest.mark.parametrize(
    ("takes", "reply", "asked"),
    [
        ([SCHEMA], Reply([PARIS]), [SCHEMA]),
        ([OBJECT], Reply([PARIS]), [SCHEMA, OBJECT]),
        (["tool"], Reply(["Here: ", tool_call(FINAL_ANSWER, PARIS)]), [SCHEMA, OBJECT, "tool"]),
        (["tool"], Reply([PARIS]), [SCHEMA, OBJECT, "tool"]),
        (["prompt"], Reply([PARIS]), [SCHEMA, OBJECT, "tool", "prompt"]),
    ],
)
async def test_data_is_asked_for_by_the_best_means_that_are_taken(
    takes: list[str], reply: Reply, asked: list[str]
) -> None:
    """Data is requested by the best accepted means.

    A refused one is not tried again in this process, and not visible in the transcript.
    """
    provider = Picky(*takes, answer=[reply, reply])
    async with model_rig(provider, agent=agent(output=City)) as rig:
        answer = await rig.run()
        assert (answer.text, answer.tool_calls, answer.refused) == (PARIS, (), "")
        assert provider.by == asked
        last = rig.provider.requests[-1]
        assert ("fits this schema" in json.dumps(last.messages)) == (asked[-1] in {OBJECT, "prompt"})
        assert last.body.get("tool_choice") == ("required" if asked[-1] == "tool" else None)
        await again(rig)
        assert provider.by == [*asked, asked[-1]]


async def again(rig: ModelRig) -> None:
    """Run the next call, after a user has asked again."""
    follow_up = QUESTION.model_copy(update={"message_id": "again"})
    await rig.run(rig.changed(iteration=2, length=rig.call.length + 2, new=(follow_up,)))


@pytest.mark.parametrize(
    ("output_by", "asked"), [("tool", "tool"), ("prompt", "prompt"), ("response_format", SCHEMA)]
)
async def test_authors_may_choose_the_means(output_by: str, asked: str) -> None:
    """With a means of the author, no other is tried."""
    provider = Picky(asked, answer=[Reply([PARIS])])
    async with model_rig(provider, agent=agent(output=City)) as rig:
        await rig.run(rig.changed(settings=ModelSettings(output_by=output_by)))  # pyright: ignore[reportArgumentType] -- one of them
    assert provider.by == [asked]


async def test_other_calls_beside_the_answer_run_first() -> None:
    """Other calls beside the answer run first, and the answer may be given again.

    With other tools none is forced.
    """
    calls = (tool_call(FINAL_ANSWER, PARIS, index=0), tool_call("search", '{"query": "é"}', index=1))
    provider = Picky("tool", answer=[Reply(calls)])
    asking = agent(tools(search), output=City)
    async with model_rig(provider, agent=asking) as rig:
        reply = await rig.run(rig.changed(settings=ModelSettings(output_by="tool")))
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [("search", '{"query": "é"}')]
        assert "tool_choice" not in rig.provider.requests[0].body
        assert [event.name for event in await rig.events_of(ToolCalled)] == ["search"]
