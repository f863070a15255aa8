"""All providers of the zoo, and the loop that each has to pass: two iterations with two parallel tools."""

from tests.support.servers.zoo.anthropic import Anthropic, Copilot
from tests.support.servers.zoo.deepseek import DeepSeek
from tests.support.servers.zoo.engines import VLLM, KimiK2, LlamaCpp, OldLlamaCpp, QwenWithoutParser
from tests.support.servers.zoo.gateways import LiteLLM, OllamaBehindLiteLLM
from tests.support.servers.zoo.gemini import Gemini, Gemini2, Vertex
from tests.support.servers.zoo.groq import Groq
from tests.support.servers.zoo.local import LMStudio, OldOllama, Ollama
from tests.support.servers.zoo.mistral import HostedGlm, Mistral
from tests.support.servers.zoo.openai_chat import Azure, OpenAI
from tests.support.servers.zoo.openrouter import OpenRouter, OpenRouterToOpenAI
from tests.support.servers.zoo.provider import Played, Provider
from tests.support.servers.zoo.responses import OpenAIResponses

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
VARIANTS: list[type[Provider]] = [
    Gemini2,
    Vertex,
    Copilot,
    HostedGlm,
    OpenRouterToOpenAI,
    OldLlamaCpp,
    OldOllama,
    LiteLLM,
    OllamaBehindLiteLLM,
    QwenWithoutParser,
    KimiK2,
]
"""Variants of a provider: other models, or older versions."""

SPEAKING: list[type[Provider]] = [*PROVIDERS, OpenAIResponses]
"""All of them, with either API."""

ASKING = Played(
    thought="Two look-ups: Köln 🜁 and Ålesund.",
    text="I look it up.",
    calls=(("search", '{"query": "Köln 🜁"}'), ("search", '{"query": "Ålesund"}')),
)
ANSWERING = Played(thought="That is enough.", text="Both are cities — 🜁.")
