"""Whole tasks on model servers of other projects."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import TaskState
from pydantic import JsonValue

from tests.support.a2a_client import Answer, connected, request
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.foreign import (
    LITELLM_KEY,
    NotInstallableError,
    install_aimock,
    install_litellm,
    running_aimock,
    running_litellm,
)
from tests.support.servers.scripted_openai import ScriptedOpenAI
from tests.support.servers.zoo.all import ANSWERING, ASKING
from tests.support.servers.zoo.deepseek import DeepSeek
from tests.support.servers.zoo.openai_chat import OpenAI
from tests.support.servers.zoo.provider import Provider, loaded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # they are installed first

AGENT = "tests.support.agents.providers:anywhere"
QUESTION = "Which of the two is a city?"
FIXTURES: list[dict[str, JsonValue]] = [
    {
        "match": {"userMessage": QUESTION, "hasToolResult": False},
        "response": {
            "reasoning": ASKING.thought,
            "content": ASKING.text,
            "toolCalls": [{"name": name, "arguments": loaded(arguments)} for name, arguments in ASKING.calls],
        },
    },
    {"match": {"toolResultContains": "is a city"}, "response": {"content": ANSWERING.text}},
]


async def _installed(install: Callable[[Path], Awaitable[Path]], directory: Path) -> Path:
    try:
        return await install(directory)
    except NotInstallableError as error:
        pytest.skip(
            f"{error} -- it is only for this test, and there are machines without the package indexes"
        )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def aimock(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    directory = tmp_path_factory.mktemp("aimock")
    command = await _installed(install_aimock, directory)
    async with running_aimock(command, directory, FIXTURES) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def behind() -> AsyncGenerator[ScriptedOpenAI]:
    """The providers behind LiteLLM."""
    async with ScriptedOpenAI() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def litellm(behind: ScriptedOpenAI, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    directory = tmp_path_factory.mktemp("litellm")
    command = await _installed(install_litellm, directory)
    to_the_zoo = {"api_base": behind.base_url, "api_key": "sk-of-the-zoo"}
    models = {
        model: {"model": f"{kind}/{model}", **to_the_zoo}
        for kind, model in (("openai", OpenAI.model), ("deepseek", DeepSeek.model))
    }
    async with running_litellm(command, directory, models) as url:
        yield url


async def _ask(directory: Path, url: str, model: str, **settings: str) -> Answer:
    (directory / "everloop").mkdir()
    settings = {"EVERLOOP_MODEL": model, "OPENAI_API_KEY": LITELLM_KEY, **settings}
    async with running_deployment(directory / "everloop", f"{url}/v1", agents=AGENT, **settings) as everloop:
        await everloop.add_worker()
        async with connected((await everloop.add_gateway()).url) as client:
            return await Answer().read(client.send_message(request(QUESTION)))


async def test_aimock_gets_its_results(tmp_path: Path, aimock: str) -> None:
    """Two iterations with two parallel tools."""
    answer = await _ask(tmp_path, aimock, "gpt-4o")

    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert (answer.text.strip(), answer.finals) == (ANSWERING.text, 1)


async def test_aimock_gets_its_results_as_items(tmp_path: Path, aimock: str) -> None:
    """The same over the Responses API."""
    file = tmp_path / "models.toml"
    file.write_text('[providers.openai]\nkind = "responses"\n', encoding="utf-8")
    answer = await _ask(tmp_path, aimock, "gpt-5-mini", EVERLOOP_MODELS_FILE=str(file))

    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert (answer.text.strip(), answer.finals) == (ANSWERING.text, 1)
    async with httpx.AsyncClient() as client:
        asked = (await client.get(f"{aimock}/__aimock/journal", params={"path": "/v1/responses"})).json()
    assert len(asked) == 2


@pytest.mark.parametrize("kind", [OpenAI, DeepSeek])
async def test_litellm_passes_on_what_goes_back(
    tmp_path: Path, litellm: str, behind: ScriptedOpenAI, kind: type[Provider]
) -> None:
    """Two iterations with two parallel tools, at two providers behind a proxy that rewrites all requests."""
    behind.script = provider = kind(ASKING, ANSWERING)
    behind.requests.clear()
    answer = await _ask(tmp_path, litellm, kind.model)

    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert (answer.text.strip(), answer.finals) == (ANSWERING.text, 1)
    assert len(behind.requests[1].tool_results) == len(ASKING.calls)
    assert provider.regrets == []
