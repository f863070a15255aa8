"""Clients of model providers, one each a process; structured output; the check of agents' models."""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import cast

import structlog

from everloop.agents.agent import Agent
from everloop.models.catalogue import Catalogue, ChosenModel, Provider
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    Model,
    ModelRequest,
    Opaque,
    OutputSchema,
    TextDelta,
)
from everloop.runtime.environment import StartError
from everloop.runtime.user_code import error_kind, translate_base_exceptions
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import ListedTool

# Ways to get an answer that has to be data, depending on the provider. Best first: a schema that the provider
# enforces, any JSON object, a tool that takes the answer, a prompt. The reply looks the same for all of them:
# its text is the answer.

FINAL_ANSWER = "final_answer"
"""The tool that takes the answer."""

_RUNGS = ("json_schema", "json_object", "tool", "prompt")

_BY = {"response_format": ("json_schema", "json_object"), "tool": ("tool",), "prompt": ("prompt",)}


def _request_by(by: str, request: ModelRequest, output: OutputSchema) -> ModelRequest:
    changed = replace(request, output=replace(output, by=by))
    if by == "tool":
        offered = ListedTool(
            name=FINAL_ANSWER,
            description="Give your answer to the user: call this once, as the last thing you do.",
            parameters={**output.schema},
        )
        forced = request.settings if request.tools else ModelSettings(tool_choice="required")
        return replace(changed, tools=(*request.tools, offered), settings=forced.over(request.settings))
    if by == "json_schema":
        return changed
    schema = json.dumps(output.schema, ensure_ascii=False)
    told = f"Your answer has to be JSON that fits this schema, and nothing else:\n{schema}"
    return replace(changed, messages=(*request.messages, {"role": "system", "content": told}))


async def answer_of_tool(deltas: AsyncIterable[Delta]) -> AsyncGenerator[Delta]:
    """Yield a reply in which the call of `FINAL_ANSWER` is the text, and the other calls are the calls."""
    texts: list[TextDelta] = []
    answers: dict[int, list[str]] = {}
    numbers: dict[int, int] = {}
    async for delta in deltas:
        match delta:
            case TextDelta():
                texts.append(delta)
            case CallDelta(call, name) if call in answers or (call not in numbers and name == FINAL_ANSWER):
                answers.setdefault(call, []).append(delta.arguments)
            case CallDelta(call):
                yield replace(delta, call=numbers.setdefault(call, len(numbers)))
            case Ended():
                first = next(iter(answers.values()), None)
                yield TextDelta("".join(first if first is not None else (text.text for text in texts)))
                yield _ended(delta, answers, numbers)
            case _:
                yield delta


def _ended(ended: Ended, answers: dict[int, list[str]], numbers: dict[int, int]) -> Ended:
    calls = {numbers[call]: fields for call, fields in ended.opaque.calls.items() if call in numbers}
    is_answer = bool(answers) and not numbers and ended.reason == "tool_calls"
    opaque = Opaque(ended.opaque.fields, calls, ended.opaque.reasoning_field)
    return replace(ended, opaque=opaque, reason="stop" if is_answer else ended.reason)


_log = structlog.get_logger()


class Clients:
    """The models by provider, created on first use, and the output methods that they have refused."""

    def __init__(self) -> None:
        self._made: dict[str, Model] = {}
        self._refused: set[tuple[str, bool, str]] = set()

    def of(self, provider: Provider) -> Model:
        """Return the model of a provider."""
        if provider.name not in self._made:
            self._made[provider.name] = make_model(provider)
        return self._made[provider.name]

    def by_each_means(self, chosen: ChosenModel, request: ModelRequest) -> Sequence[ModelRequest]:
        """Return a request per available method, best first. Without an output schema, the request itself."""
        if not request.output:
            return (request,)
        required = _BY.get(request.settings.output_by or "auto")
        means = required or chosen.output or _RUNGS
        left = [by for by in means if (chosen.name, bool(request.tools), by) not in self._refused]
        return [_request_by(by, request, request.output) for by in left or means[-1:]]

    def refuse(self, chosen: ChosenModel, request: ModelRequest, sent: ModelRequest) -> None:
        """Record that the provider refused a method; with tools it may support fewer."""
        if sent.output:
            self._refused.add((chosen.name, bool(request.tools), sent.output.by))

    async def aclose(self) -> None:
        """Close all connections. Exceptions of an author's client are logged."""
        for name, model in self._made.items():
            try:
                with translate_base_exceptions():
                    await model.close()
            except Exception as error:  # noqa: BLE001 -- it may be the user's code, and the others have to close too
                _log.warning("model not closed", provider=name, error_type=error_kind(error))


def make_model(provider: Provider) -> Model:
    """Return the model of a provider, by its kind.

    Raises:
        StartError: Its kind names a module that cannot be imported, or an attribute that the module lacks.
    """
    return _maker(provider)(provider)


def _maker(provider: Provider) -> Callable[[Provider], Model]:
    match provider.kind:
        case "chat":
            from everloop.models.chat import Chat  # noqa: PLC0415 -- the SDK: 0.6 s; likewise below

            return Chat
        case "responses":
            from everloop.models.responses import Responses  # noqa: PLC0415 -- as for Chat

            return Responses
        case kind:
            module, _, attribute = kind.partition(":")
            try:
                with translate_base_exceptions():
                    return cast("Callable[[Provider], Model]", getattr(import_module(module), attribute))
            except Exception as error:  # noqa: BLE001 -- it is the user's code
                raise StartError(
                    f"models.toml: providers.{provider.name}.kind: cannot load {kind!r} "
                    f"({error_kind(error)}); give a module that can be imported here, and a function in "
                    "it that makes a Model"
                ) from None


def check_agents(catalogue: Catalogue, agents: Iterable[Agent]) -> None:
    """Check, without a request to a provider, that all models of these agents can be called.

    Raises:
        StartError: A model has an unknown provider or is not set, a variable of its provider is not set, its
            kind cannot be imported, or its price is unknown where an agent limits its cost.
    """
    for agent in agents:
        try:
            _check_models(catalogue, agent)
        except StartError as error:
            raise StartError(f"{agent.place}: {error}") from None


def misspelt_models(catalogue: Catalogue, agents: Iterable[Agent]) -> list[str]:
    """Return a message for each unknown model whose name resembles that of a known one."""
    told: list[str] = []
    for agent in agents:
        for name in (agent.models or [agent.model]) if agent.asks_model else ():
            chosen = catalogue.find(name, agent.id)
            if better := chosen.provider.better_name(chosen.model):
                told.append(
                    f"{agent.place}: agent {agent.id!r} asks {chosen.name}, which models.toml does not know; "
                    f"did you mean {better}? It is asked all the same"
                )
    return told


def _check_models(catalogue: Catalogue, agent: Agent) -> None:
    if not agent.asks_model:
        return
    narrators = [plugin.narrator.model for plugin in agent.plugins if plugin.narrator]
    own = [catalogue.choose(name, agent.id) for name in agent.models or [agent.model]]
    for chosen in [*own, *(catalogue.choose(name, agent.id) for name in narrators if name)]:
        _maker(chosen.provider)  # loads its client now, so that the first call need not wait
    if agent.limits.cost is not None or any(plugin.needs_price for plugin in agent.plugins):
        for chosen in own:
            if not chosen.price:
                raise StartError(unpriced(chosen, agent.id))


def unpriced(chosen: ChosenModel, agent_id: str) -> str:
    """Return the message for a missing price."""
    return (
        f"agent {agent_id!r} limits its cost, and the price of {chosen.name} is not known: "
        f'set price of [models."{chosen.name}"] in models.toml (EVERLOOP_MODELS_FILE)'
    )
