"""Model calls against the providers of the zoo, with the differences and the refusals of each."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any

import pytest

from everloop import Agent, prompt
from everloop.activities.model.reply import MAX_OPAQUE
from everloop.models.catalogue import Catalogue, ModelEntry
from everloop.models.catalogue import Provider as Entry
from everloop.models.chat import Chat
from everloop.models.conformance import MODEL_CHECKS, Check, ProviderHarness
from everloop.models.responses import Responses
from everloop.workflows.contract.failures import CONTEXT_TOO_LONG, MODEL_REFUSED, MODEL_UNAVAILABLE
from everloop.workflows.contract.messages import AssistantMessage, TextPart, ToolCall, UserMessage
from tests.support.rigs.model_rig import QUESTION, ModelRig, model_rig
from tests.support.servers.scripted_openai import Raw, Reply
from tests.support.servers.zoo.all import ANSWERING, ASKING, PROVIDERS, SPEAKING, VARIANTS
from tests.support.servers.zoo.engines import QwenWithoutParser
from tests.support.servers.zoo.gateways import FunctionCalls
from tests.support.servers.zoo.harnesses import ServerHarness, ThinkingOpenAI
from tests.support.servers.zoo.openai_chat import OpenAI
from tests.support.servers.zoo.provider import Framing, Means, Played, Provider
from tests.support.servers.zoo.responses import OpenAIResponses

SHIPPED = Catalogue.load(None, None, {}).providers
KNOWN = {each.name for each in fields(Entry)} - {"name", "base_url", "key"}


def terms(kind: type[Provider]) -> dict[str, Any]:
    """Return the terms that ship for a provider, with the user's setting if its template begins a thought."""
    entry = SHIPPED.get(kind.name)
    known: dict[str, Any] = {each: getattr(entry, each) for each in KNOWN} if entry else {}
    if kind is QwenWithoutParser:
        known["models"] = {"": ModelEntry(starts_thinking=True)}
    # OpenAI speaks both.
    return {**known, "kind": "responses" if kind is OpenAIResponses else "chat"}


@asynccontextmanager
async def rig_at(provider: Provider) -> AsyncGenerator[ModelRig]:
    """Yield a rig that asks a model of this provider, on its terms."""
    async with model_rig(provider, **terms(type(provider))) as rig:
        rig.port = rig.port_to(f"openai/{provider.model}")
        yield rig


async def loop(rig: ModelRig) -> tuple[AssistantMessage, AssistantMessage]:
    """Run two iterations: two parallel calls, and their results."""
    asking = await rig.run()
    results = tuple(call.result(f"{call.name} found it") for call in asking.tool_calls)
    length = rig.call.length + 1 + len(results)
    await rig.store(*results, start=2)
    answering = await rig.run(rig.changed(iteration=2, length=length, new=()))
    return asking, answering


@pytest.mark.parametrize("kind", [*SPEAKING, *VARIANTS])
async def test_the_loop_passes(kind: type[Provider]) -> None:
    """Calls and answer come through without thoughts, and opaque fields are sent back."""
    provider = kind(ASKING, ANSWERING)
    async with rig_at(provider) as rig:
        asking, answering = await loop(rig)
        shown = await rig.answer()
    assert [(call.name, json.loads(call.arguments)) for call in asking.tool_calls] == [
        ("search", {"query": "Köln 🜁"}),
        ("search", {"query": "Ålesund"}),
    ]
    assert (asking.text.strip(), answering.text.strip()) == (ASKING.text, ANSWERING.text)
    assert shown == (answering.text, True)
    assert answering.reasoning.strip() in {"", ANSWERING.thought}
    assert provider.regrets == []


ODD = AssistantMessage(
    text="\n\n",
    tool_calls=(ToolCall(id="r00001c01", name="functions.search", arguments='{"query": NaN}'),),
)


@pytest.mark.parametrize("kind", [*PROVIDERS, *VARIANTS])
async def test_odd_messages_go_back_in_a_form_that_is_taken(kind: type[Provider]) -> None:
    """Odd messages are sent back in an accepted form.

    They have blank texts, invalid names, arguments other than JSON or results without text. Otherwise a
    provider would refuse every later call of the task and the conversation.
    """
    provider = kind(ANSWERING)
    async with rig_at(provider) as rig:
        blank = UserMessage(message_id="blank", parts=(TextPart(text=" "),))
        result = ODD.tool_calls[0].result("")
        replies = [AssistantMessage(text=" ", refused="it was empty"), AssistantMessage(text="")]
        await rig.store(blank, ODD, result, *replies)
        reply = await rig.run(rig.changed(iteration=2, length=5, new=()))
    assert reply.text.strip() == ANSWERING.text


PROMPTED = Agent(
    id="agent", name="Agent", description="", plugins=[prompt("Answer in French.", place="after")]
)

EARLIER = AssistantMessage(
    tool_calls=tuple(
        ToolCall(id=f"r00001c0{n}", name="search", arguments="{}", opaque='{"of": "another model"}')
        for n in (1, 2)
    ),
    source="other/model",
    opaque='{"secret": "of another model"}',
)


@pytest.mark.parametrize("kind", [*PROVIDERS, *VARIANTS])
async def test_the_history_of_another_model_is_taken(kind: type[Provider]) -> None:
    """A history of another model is accepted: its opaque fields are not sent."""
    provider = kind(ANSWERING)
    async with rig_at(provider) as rig:
        results = [call.result("found") for call in EARLIER.tool_calls]
        await rig.store(QUESTION, EARLIER, *results)
        reply = await rig.run(rig.changed(iteration=2, length=4, new=()))
        assert "another model" not in json.dumps(rig.provider.requests[0].body)
    assert reply.text.strip() == ANSWERING.text


async def test_what_goes_back_is_shown_to_nobody() -> None:
    """Opaque fields are in neither events nor view; too large ones are logged and not stored."""
    wanted = Raw('{"choices": [{"delta": {"signature": "for the provider", "thought_signature": "%s"}}]}')
    for size, kept in ((10, True), (MAX_OPAQUE, False)):
        script = [Reply(["Hi", replace(wanted, data=wanted.data % ("x" * size))])]
        async with model_rig(script) as rig:
            reply = await rig.run()
            shown = repr((await rig.events(), await rig.view()))
            assert ("for the provider" in reply.opaque) == kept
            assert "for the provider" not in shown
            assert ("wants more back" in shown) != kept


@pytest.mark.parametrize("kind", [*PROVIDERS, *VARIANTS])
async def test_a_prompt_behind_the_history_is_taken(kind: type[Provider]) -> None:
    """A system prompt after the history is accepted; some providers get it as a user message."""
    provider = kind(ANSWERING)
    async with model_rig(provider, agent=PROMPTED, **terms(kind)) as rig:
        rig.port = rig.port_to(f"openai/{provider.model}")
        reply = await rig.run()
        assert rig.provider.requests[0].conversation[-1]["content"] == "Answer in French."
    assert reply.text.strip() == ANSWERING.text


FRAMINGS = {
    "CRLF, as SSE allows it (WHATWG HTML §9.2.5)": Framing(newline="\r\n"),
    "no space behind the colon, freellmapi PR 1092 (Ant's API), openai-python#498 (Spring)": Framing(
        label="data:"
    ),
    "single bytes, which cut characters": Framing(piece=1),
    "pieces that fit nothing": Framing(piece=7),
    ": OPENROUTER PROCESSING": Framing(comment=": OPENROUTER PROCESSING"),
    "a colon alone, llama.cpp": Framing(comment=":"),
    "an event without data, as a sign of life, wave-agent PR 1326": Framing(comment="data:"),
    "spaces in JSON, vLLM": Framing(is_compact=False),
    "no [DONE], ik_llama.cpp#467": Framing(done=""),
    "no blank line behind [DONE], apogee PR 139 (llama.cpp b10603)": Framing(done="data: [DONE]\n"),
}


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=FRAMINGS)
@pytest.mark.parametrize("kind", [OpenAI, OpenAIResponses])
async def test_bytes_may_be_laid_out_otherwise(kind: type[Provider], framing: Framing) -> None:
    """Line ends, labels, comments and the cuts of the stream make no difference."""
    provider = kind(ASKING, ANSWERING, framing=framing)
    async with rig_at(provider) as rig:
        asking, answering = await loop(rig)
    assert [call.arguments for call in asking.tool_calls] == [arguments for _, arguments in ASKING.calls]
    assert answering.text == ANSWERING.text


@pytest.mark.parametrize("kind", SPEAKING)
async def test_a_reply_that_was_too_long_is_continued(kind: type[Provider]) -> None:
    """A reply that was cut off says so, and the provider accepts its first half for the continuation."""
    provider = kind(Played(text="And then", reason="length"), Played(text=" it ended."))
    async with rig_at(provider) as rig:
        reply = await rig.run()
        assert await rig.answer() == ("And then it ended.", True)
    assert (reply.text, reply.finish_reason) == ("And then it ended.", "stop")
    assert provider.regrets == []


@pytest.mark.parametrize("kind", SPEAKING)
async def test_a_refusal_is_read(kind: type[Provider]) -> None:
    """The model's refusal comes through, as its answer or as the reason for a missing one."""
    provider = kind(Played(refusal="I cannot help with that."))
    async with rig_at(provider) as rig:
        reply = await rig.run()
    assert "I cannot help with that." in {reply.text, reply.closing.removeprefix("the model declined: ")}


@pytest.mark.parametrize("kind", SPEAKING)
async def test_a_cut_is_noticed(kind: type[Provider]) -> None:
    """A lost connection is not the end of a reply: the call is retried."""
    provider = kind(Played(text="And then", cut=True))
    async with rig_at(provider) as rig:
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)


ODD_CALLS: dict[str, tuple[type[Provider], tuple[str, str]]] = {
    "a function, as before there were tools": (FunctionCalls, ASKING.calls[0]),
    "half a call that ends as a whole one": (QwenWithoutParser, ("search", '{"query": "Kö')),
}


@pytest.mark.parametrize(("kind", "call"), ODD_CALLS.values(), ids=ODD_CALLS)
async def test_odd_calls_are_read_and_taken_back(kind: type[Provider], call: tuple[str, str]) -> None:
    """A malformed call is returned as it came, and the provider accepts it with its error as the result."""
    provider = kind(Played(calls=(call,)), ANSWERING)
    async with rig_at(provider) as rig:
        asking, answering = await loop(rig)
    assert [(one.name, one.arguments) for one in asking.tool_calls] == [call]
    assert answering.text.strip() == ANSWERING.text


MEANT: dict[Means, tuple[str, bool]] = {
    "busy": (MODEL_UNAVAILABLE, False),
    "down": (MODEL_UNAVAILABLE, False),
    "unreadable": (MODEL_UNAVAILABLE, False),
    "refused": (MODEL_REFUSED, True),
    "filtered": (MODEL_REFUSED, True),
    "too long": (CONTEXT_TOO_LONG, True),
}
"""The failure of each case, and whether it ends the call."""

FAULTS = [
    pytest.param(kind, name, id=f"{kind.__name__}: {name}") for kind in SPEAKING for name in kind.faults
]


@pytest.mark.parametrize(("kind", "name"), FAULTS)
async def test_failures_are_taken_for_what_they_are(kind: type[Provider], name: str) -> None:
    """A failure is retried if waiting helps, and otherwise ends the call under its own name."""
    fault = kind.faults[name]
    async with model_rig(lambda _: fault.wire, **terms(kind)) as rig:
        rig.port = rig.port_to(f"openai/{kind.model}")
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == MEANT[fault.means]


HARNESSES: dict[str, Callable[[], ProviderHarness]] = {
    "chat": lambda: ServerHarness(Chat, ThinkingOpenAI),
    "responses": lambda: ServerHarness(Responses, OpenAIResponses),
}


@pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_models_conform(check: Check, harness: Callable[[], ProviderHarness]) -> None:
    """Each model that ships passes the conformance suite."""
    await check(harness())
