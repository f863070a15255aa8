"""Messages of a worker that cannot ask the models of its agents."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from everloop.activities.model.clients import Clients, check_agents, make_model, misspelt_models
from everloop.agents.agent import Agent, Turn
from everloop.agents.guard import budget
from everloop.agents.limits import Limits, Memory
from everloop.agents.plugins import narrator
from everloop.models.catalogue import Catalogue, Provider
from everloop.models.chat import Chat
from everloop.models.responses import Responses
from everloop.runtime.environment import StartError
from everloop.workflows.contract.messages import AssistantMessage
from tests.support.fakes.models import PlayedModel

MODELS = """
[providers.office]
base_url = "http://gpu:8000/v1"
key_variable = "OFFICE_KEY"
headers = { X-Sign = "$OFFICE_SIGN" }

[providers.acme]
kind = "acme.models:make"
base_url = "http://acme"

[providers.mine]
kind = "tests.support.fakes.models:none"

[models."office/priced"]
price = { input = 1, output = 2 }
"""


async def reply(turn: Turn) -> AssistantMessage:
    return AssistantMessage(text=str(len(turn.messages)))


def agent(*models: str, **fields: object) -> Agent:
    return Agent(id="a", name="A", description="", models=models, **fields)  # pyright: ignore[reportArgumentType] -- settings of a test


REPLYING = Agent(id="r", name="R", description="", respond=reply)
OFFICE = {"OFFICE_KEY": "k", "OFFICE_SIGN": "s"}


def check(folder: Path, agents: Sequence[Agent], default: str | None = None, **variables: str) -> None:
    (folder / "models.toml").write_text(MODELS)
    check_agents(Catalogue.load(folder / "models.toml", default, variables), agents)


WRONG: list[tuple[list[Agent], str]] = [
    ([agent()], "agent 'a' names no model: set EVERLOOP_MODEL, or Agent(model=…)"),
    ([REPLYING, agent("gpt-4.1")], "agent 'a' asks openai/gpt-4.1, and OPENAI_API_KEY is not set: set it to"),
    ([replace(REPLYING, memory=Memory(strategy="summary"))], "agent 'r' names no model"),
    ([agent("ollama/x", "offcie/x")], "no provider is called 'offcie': did you mean office/x?"),
    (
        [agent("ollama/x", plugins=[narrator(model="groq/x")])],
        "agent 'a' asks groq/x, and GROQ_API_KEY is not",
    ),
    ([agent("office/x")], "agent 'a' asks office/x, and OFFICE_KEY is not set: set it to the key"),
    ([agent("azure/x")], "AZURE_OPENAI_BASE_URL is not set: set it to the address of the provider 'azure'"),
    ([agent("acme/x")], "providers.acme.kind: cannot load 'acme.models:make' (ModuleNotFoundError); give"),
    (
        [agent("mine/x")],
        "providers.mine.kind: cannot load 'tests.support.fakes.models:none' (AttributeError)",
    ),
    (
        [agent("ollama/x", limits=Limits(cost=1))],
        "agent 'a' limits its cost, and the price of ollama/x is not",
    ),
    ([agent("ollama/x", plugins=[budget(cost=1)])], 'known: set price of [models."ollama/x"] in models.toml'),
]


@pytest.mark.parametrize(("agents", "told"), WRONG)
def test_a_model_that_cannot_be_asked_is_one_line(tmp_path: Path, agents: list[Agent], told: str) -> None:
    """A model that cannot be asked is one line with the agent, the model and the setting to add."""
    with pytest.raises(StartError) as caught:
        check(tmp_path, agents)
    (line,) = str(caught.value).splitlines()
    assert told in line


def test_a_fallback_without_a_price_is_told_too(tmp_path: Path) -> None:
    """A fallback without a price is reported, even if the first model has one."""
    both = agent("office/priced", "office/other", limits=Limits(cost=1))
    with pytest.raises(StartError, match="the price of office/other is not known"):
        check(tmp_path, [both], **OFFICE)
    check(tmp_path, [agent("office/priced", limits=Limits(cost=1))], **OFFICE)


def test_a_model_that_nobody_knows_may_be_misspelt() -> None:
    """An unknown model that resembles a known one is reported with its agent.

    Versions and new names are not.
    """
    names = ["gtp-4.1-mini", "gpt-4.1-mini-2025-04-14", "gpt-4.1", "brand-new", "ollama/gtp-4.1-mini"]
    agents = [Agent(id="a", name="A", description="", models=names)]

    (told,) = misspelt_models(Catalogue.load(None, None, {}), agents)

    assert told == (
        f"{agents[0].place}: agent 'a' asks openai/gtp-4.1-mini, which models.toml does not know; "
        "did you mean gpt-4.1-mini? It is asked all the same"
    )


def test_what_no_agent_asks_is_not_looked_at(tmp_path: Path) -> None:
    """Unused models, and those of agents that reply by a function, are not checked."""
    check(tmp_path, [REPLYING, agent(), agent("ollama/x", "lmstudio/y")], default="vllm/z")


async def test_a_kind_makes_the_model() -> None:
    """A kind, shipped or an author's own, makes its model once in a process."""
    clients = Clients()
    models = [clients.of(Provider(kind, kind=kind, base_url="http://p")) for kind in ("chat", "responses")]
    assert [type(model) for model in models] == [Chat, Responses]
    assert clients.of(Provider("chat")) is models[0]
    await clients.aclose()

    own = make_model(Provider("own", kind="tests.support.fakes.models:PlayedModel"))
    assert isinstance(own, PlayedModel)
