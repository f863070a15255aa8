"""How the model provider is configured."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from everloop.activities.model.prices import Price
from everloop.activities.model.provider import ModelKeyError, ModelSettings
from everloop.agents.agent import Agent, Turn
from everloop.agents.limits import Memory
from everloop.workflows.contract.messages import AssistantMessage


def settings(**variables: str) -> ModelSettings:
    """Return settings of an environment with these variables."""
    return ModelSettings.model_validate({"OPENAI_API_KEY": "sk-secret", **variables})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENAI_BASE_URL", "provider:80/secret"),
        ("EVERLOOP_MODEL_TIMEOUT", "0"),
        ("EVERLOOP_MODEL_TIMEOUT", "secret"),
        ("EVERLOOP_PRICES", "{secret"),
        ("EVERLOOP_PRICES", '{"m": {"input": "secret"}}'),
    ],
)
def test_a_wrong_variable_is_named_and_not_shown(variable: str, value: str) -> None:
    """The message says which variable is wrong, without its value."""
    with pytest.raises(ValidationError) as caught:
        settings(**{variable: value})
    assert variable in str(caught.value)
    assert "secret" not in str(caught.value)


async def reply(turn: Turn) -> AssistantMessage:
    return AssistantMessage(text=str(len(turn.messages)))


ASKING = Agent(id="asking", name="A", description="", model="m")
REPLYING = Agent(id="replying", name="R", description="", respond=reply)
SUMMING_UP = replace(REPLYING, id="summing-up", memory=Memory(strategy="summary"))


@pytest.mark.parametrize("key", ["", " "])
@pytest.mark.parametrize("agent", [ASKING, SUMMING_UP], ids=lambda agent: agent.id)
def test_a_missing_key_says_who_needs_it_and_what_to_set(key: str, agent: Agent) -> None:
    """Who starts a worker without a key is told what to do."""
    told = f"OPENAI_API_KEY is not set, and the agent '{agent.id}' asks a model: set it to the key"
    with pytest.raises(ModelKeyError, match=told):
        settings(OPENAI_API_KEY=key).check_key([REPLYING, agent])


def test_no_key_is_needed_where_no_agent_asks_a_model() -> None:
    """Agents whose function replies."""
    settings(OPENAI_API_KEY="").check_key([REPLYING])


def test_prices_come_from_the_environment() -> None:
    """As JSON, by model."""
    prices = settings(EVERLOOP_PRICES='{"m": {"input": 1, "output": 2}}').prices
    assert prices == {"m": Price(input=1, output=2)}
