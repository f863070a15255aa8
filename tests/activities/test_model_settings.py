"""How the model provider is configured."""

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from activities.model_settings import ModelSettings, make_openai_client

READ_PRICES = """
from pydantic import ValidationError
from activities.model_settings import ModelSettings
from stores.settings_errors import explain
try:
    print(ModelSettings().prices)
except ValidationError as error:
    print(explain(error))
"""


def settings(**variables: str) -> ModelSettings:
    """Return settings of an environment with these variables."""
    return ModelSettings.model_validate({"OPENAI_API_KEY": "sk-secret", **variables})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENAI_API_KEY", ""),
        ("OPENAI_API_KEY", " "),
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


def test_a_missing_key_says_what_to_set() -> None:
    """Who starts a worker without a key is told what to do."""
    with pytest.raises(ValidationError, match="OPENAI_API_KEY is not set: set it to the key"):
        settings(OPENAI_API_KEY="")


async def test_the_client_does_not_retry() -> None:
    """Exactly one layer retries, and it is not the client."""
    async with make_openai_client(settings(OPENAI_BASE_URL="http://127.0.0.1:1/v1")) as client:
        assert client.max_retries == 0
        assert str(client.base_url) == "http://127.0.0.1:1/v1/"


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ('{"m": {"input": 1, "output": 2}}', "{'m': Price(input=1.0, output=2.0)}"),
        ("", "{}"),
        ("{secret", "EVERLOOP_PRICES: Invalid JSON"),
        ('{"m": {"input": 1}}', "EVERLOOP_PRICES: m: output: Field required"),
    ],
)
def test_prices_come_from_the_environment(prices: str, said: str) -> None:
    """A process reads its price list; one that is wrong is explained in a line, without the value."""
    environment = {**os.environ, "OPENAI_API_KEY": "k", "EVERLOOP_PRICES": prices}
    process = subprocess.run(
        [sys.executable, "-c", READ_PRICES],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=20,
    )

    [line] = process.stdout.splitlines()
    assert line.startswith(said)
    assert "secret" not in line


def test_the_key_is_not_shown() -> None:
    """Settings can be printed."""
    assert "sk-secret" not in repr(settings())
