"""The models of a process: made when they are first asked, and looked at before any of them is."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import cast

import structlog

from everloop.activities.model.rungs import Rungs
from everloop.agents.agent import Agent
from everloop.models.catalogue import Catalogue, ChosenModel, Provider
from everloop.models.chat import Chat
from everloop.models.interface import Model
from everloop.models.responses import Responses
from everloop.runtime.settings import StartError

_log = structlog.get_logger()


class Clients:
    """The models by provider, each made when it is first asked, and what is known of them since then."""

    def __init__(self) -> None:
        self.rungs = Rungs()
        self._made: dict[str, Model] = {}

    def of(self, provider: Provider) -> Model:
        """Return the model of a provider."""
        if provider.name not in self._made:
            self._made[provider.name] = make_model(provider)
        return self._made[provider.name]

    async def aclose(self) -> None:
        """Let go of all their connections; what one of an author raises is logged."""
        for name, model in self._made.items():
            try:
                await model.close()
            except Exception as error:  # noqa: BLE001 -- it may be the user's code, and the next one is to close too
                _log.warning("model not closed", provider=name, error_type=type(error).__name__)


def make_model(provider: Provider) -> Model:
    """Return the model of a provider, by its kind.

    Raises:
        StartError: its kind is of a module that cannot be imported, or that has no such attribute.
    """
    return _maker(provider)(provider)


def _maker(provider: Provider) -> Callable[[Provider], Model]:
    match provider.kind:
        case "chat":
            return Chat
        case "responses":
            return Responses
        case kind:
            module, _, attribute = kind.partition(":")
            try:
                return cast("Callable[[Provider], Model]", getattr(import_module(module), attribute))
            except Exception as error:  # noqa: BLE001 -- it is the user's code
                raise StartError(
                    f"models.toml: providers.{provider.name}.kind: cannot load {kind!r} "
                    f"({type(error).__name__}); give a module that can be imported here, and a function in "
                    "it that makes a Model"
                ) from None


def check_agents(catalogue: Catalogue, agents: Iterable[Agent]) -> None:
    """Find out whether all models that these agents ask can be asked, as far as one sees without asking.

    Raises:
        StartError: a model is of no known provider, or nobody names one; a variable of its provider is not
            set; its kind cannot be imported; or its price is not known where an agent's cost has a limit.
    """
    for agent in agents:
        if not agent.asks_model:
            continue
        narrators = [plugin.narrator.model for plugin in agent.plugins if plugin.narrator]
        own = [catalogue.choose(name, agent.id) for name in agent.models or [agent.model]]
        for chosen in [*own, *(catalogue.choose(name, agent.id) for name in narrators if name)]:
            _maker(chosen.provider)
        if agent.limits.cost is not None or any(plugin.needs_price for plugin in agent.plugins):
            for chosen in own:
                if not chosen.price:
                    raise StartError(unpriced(chosen, agent.id))


def unpriced(chosen: ChosenModel, agent_id: str) -> str:
    """Say that a price is not known that has to be."""
    return (
        f"agent {agent_id!r} limits its cost, and the price of {chosen.name} is not known: "
        f'set price of [models."{chosen.name}"] in models.toml (EVERLOOP_MODELS_FILE)'
    )
