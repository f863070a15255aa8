"""Model calls against the providers of the zoo: what each does differently, and what each refuses."""

import json

import pytest

from everloop.workflows.contract.messages import AssistantMessage
from tests.support.rigs.model_rig import ModelRig, model_rig
from tests.support.servers.zoo.anthropic import Anthropic
from tests.support.servers.zoo.deepseek import DeepSeek
from tests.support.servers.zoo.engines import VLLM, LlamaCpp
from tests.support.servers.zoo.gemini import Gemini, Gemini2, Vertex
from tests.support.servers.zoo.groq import Groq
from tests.support.servers.zoo.local import LMStudio, Ollama, OldOllama
from tests.support.servers.zoo.mistral import HostedGlm, Mistral
from tests.support.servers.zoo.openai_chat import Azure, OpenAI
from tests.support.servers.zoo.openrouter import OpenRouter
from tests.support.servers.zoo.provider import Played, Provider

PROVIDERS: list[type[Provider]] = [
    OpenAI,
    Azure,
    DeepSeek,
    Gemini,
    Anthropic,
    Mistral,
    Groq,
    OpenRouter,
    VLLM,
    LlamaCpp,
    Ollama,
    LMStudio,
]
VARIANTS: list[type[Provider]] = [Gemini2, Vertex, HostedGlm, OldOllama]
"""Of a provider: other models, or older versions."""

_OPAQUE = "fields of a reply that nobody reads are not sent back: "

LOOPS_THAT_FAIL: dict[type[Provider], str] = {
    DeepSeek: _OPAQUE + "reasoning_content, without which the second call is refused",
    Gemini: _OPAQUE + "thought_signature, without which the second call is refused; <thought> is not split",
    Gemini2: 'parallel calls without index, whose ids are all "", are taken for one; <thought> is not split',
    Vertex: _OPAQUE + "thought_signature; ids that move between indexes are taken for further calls",
    Mistral: "stream_options is refused; content that is a list of parts is not read, nor sent back",
    HostedGlm: "stream_options is refused",
    OpenRouter: _OPAQUE + "reasoning_details, without which the model answers worse",
    LlamaCpp: "parallel_tool_calls is not sent, and without it there is one call in a reply",
    LMStudio: "<think> is not split off the answer",
}
"""What is not yet done to get through the loop, by provider."""

ASKING = Played(
    thought="Two look-ups: Köln 🜁 and Ålesund.",
    text="I look it up.",
    calls=(("search", '{"query": "Köln 🜁"}'), ("search", '{"query": "Ålesund"}')),
)
ANSWERING = Played(thought="That is enough.", text="Both are cities — 🜁.")


def expected_failure(
    reasons: dict[type[Provider], str], provider: type[Provider]
) -> list[pytest.MarkDecorator]:
    """Return the mark of a row that fails today."""
    if provider not in reasons:
        return []
    return [pytest.mark.xfail(strict=True, reason=reasons[provider])]


def rows(*providers: type[Provider], fails: dict[type[Provider], str]) -> list[object]:
    """Return a row for each provider."""
    return [
        pytest.param(
            provider, id=f"{provider.name} {provider.__name__}", marks=expected_failure(fails, provider)
        )
        for provider in providers
    ]


async def loop(provider: Provider, rig: ModelRig) -> tuple[AssistantMessage, AssistantMessage]:
    """Run two iterations: two parallel calls, and their results."""
    rig.port = rig.port_to(provider.model)
    asking = await rig.run()
    results = tuple(call.result(f"{call.name} found it") for call in asking.tool_calls)
    length = rig.call.length + 1 + len(results)
    await rig.store(*results, start=2)
    answering = await rig.run(rig.changed(iteration=2, length=length, new=()))
    return asking, answering


@pytest.mark.parametrize("kind", rows(*PROVIDERS, *VARIANTS, fails=LOOPS_THAT_FAIL))
async def test_the_loop_passes(kind: type[Provider]) -> None:
    """Two parallel calls and the answer come through, thought stays out of it, and what has to go back does."""
    provider = kind(ASKING, ANSWERING)
    async with model_rig(provider) as rig:
        asking, answering = await loop(provider, rig)
        shown = await rig.answer()
    assert [(call.name, json.loads(call.arguments)) for call in asking.tool_calls] == [
        ("search", {"query": "Köln 🜁"}),
        ("search", {"query": "Ålesund"}),
    ]
    assert (asking.text.strip(), answering.text.strip()) == (ASKING.text, ANSWERING.text)
    assert shown == (answering.text, True)
    assert answering.reasoning.strip() in {"", ANSWERING.thought}
    assert provider.regrets == []
