"""Whole tasks on providers as they are, and from one to another in the middle of a task."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, TaskState
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from tests.support.a2a_client import Answer, Binding, connected, request, response_of, send
from tests.support.rigs.provider_rig import RESPONSES, Zoo, running_zoo
from tests.support.secret_search import redis_keys_with
from tests.support.seeded_secrets import MODEL_KEY, seed_secret
from tests.support.servers.scripted_openai import ReceivedRequest
from tests.support.servers.webhook import running_webhook
from tests.support.servers.zoo.all import ANSWERING, ASKING
from tests.support.servers.zoo.deepseek import DeepSeek
from tests.support.servers.zoo.engines import VLLM
from tests.support.servers.zoo.gemini import Gemini
from tests.support.servers.zoo.local import Ollama
from tests.support.servers.zoo.openrouter import OpenRouter
from tests.support.servers.zoo.provider import Provider
from tests.support.servers.zoo.responses import OpenAIResponses

KINDS: dict[str, type[Provider]] = {
    "deepseek": DeepSeek,
    "gemini": Gemini,
    "ollama": Ollama,
    "vllm": VLLM,
    "openrouter": OpenRouter,
    RESPONSES: OpenAIResponses,
}
KEYS = ("DEEPSEEK_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")
FOUND = ["Köln 🜁 is a city", "Ålesund is a city"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def zoo(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Zoo]:
    agents, directory = "tests.support.agents.providers:of_the_zoo", tmp_path_factory.mktemp("zoo")
    settings = {
        **dict.fromkeys(KEYS, MODEL_KEY),
        "EVERLOOP_LOG_LEVEL": "debug",
        "EVERLOOP_PUSH_ALLOW": "127.0.0.0/8",
    }
    async with running_zoo(directory, agents, *KINDS, **settings) as running:
        yield running


def _found(received: ReceivedRequest) -> bool:
    """Whether both results go to the model, marked for its cache or not."""
    first, second = sorted(received.tool_results, key=lambda result: FOUND[0] not in result)
    return FOUND[0] in first and FOUND[1] in second


@pytest.mark.parametrize("name", KINDS)
async def test_a_task_gets_its_answer(zoo: Zoo, name: str) -> None:
    """Two tools are called at once, their results are read, and the answer is streamed, without a thought."""
    provider = KINDS[name](ASKING, ANSWERING)
    zoo.play(**{name: provider})
    async with connected(zoo.at(name)) as client:
        answer = await Answer().read(client.send_message(request("Which of the two is a city?")))

    assert (answer.text.strip(), answer.finals) == (ANSWERING.text, 1)
    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert _found(zoo.servers[name].requests[1])
    assert provider.regrets == []


@pytest.mark.parametrize(
    ("first", "fault", "second"),
    [
        ("deepseek", "no balance", "gemini"),
        ("gemini", "wrong key", "deepseek"),
        ("gemini", "overloaded", "ollama"),
    ],
)
async def test_another_provider_takes_over(zoo: Zoo, first: str, fault: str, second: str) -> None:
    """Behind the calls of one provider another one answers, which wants other fields of them."""
    lost = KINDS[first].faults[fault]
    zoo.play(**{first: KINDS[first](ASKING, lost, lost, lost), second: KINDS[second](ANSWERING)})
    async with connected(zoo.at(f"{first}-or-{second}"), streaming=False) as client:
        task = await send(client, request("Which of the two is a city?"))

    assert (task.status.state, response_of(task).strip()) == (
        TaskState.TASK_STATE_COMPLETED,
        ANSWERING.text,
    )
    (asked,) = zoo.servers[second].requests
    assert _found(asked)


async def test_a_model_of_an_author_is_asked(zoo: Zoo) -> None:
    """What speaks no API of OpenAI is a class that models.toml names."""
    async with connected(zoo.at("parrot"), streaming=False) as client:
        task = await send(client, request("Which of the two is a city?"))

    assert (task.status.state, response_of(task)) == (TaskState.TASK_STATE_COMPLETED, "Köln is a city")


OPAQUE = {"gemini": "EjQKMgEMOdbH0", "openrouter": "Et0BCkgIChACGAIq0", RESPONSES: "gAAAAABrs_00"}
"""What each wants back of its first reply."""


@pytest.mark.parametrize("name", OPAQUE)
async def test_what_a_provider_wants_back_nobody_else_reads(zoo: Zoo, name: str) -> None:
    """It stands in no stream, task, list, notification or log, nor in what Redis makes them of."""
    secret = seed_secret(OPAQUE[name])
    wires: list[Message] = []
    bindings: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")
    async with running_webhook() as hook:
        for binding in bindings:
            zoo.play(**{name: KINDS[name](ASKING, ANSWERING)})
            asked = request("Which of the two is a city?")
            asked.configuration.task_push_notification_config.url = hook.url
            async with connected(zoo.at(name), binding=binding) as client:
                streamed = await Answer().read(client.send_message(asked))
                task = await client.get_task(GetTaskRequest(id=streamed.task_id, history_length=100))
                listed = await client.list_tasks(ListTasksRequest(include_artifacts=True))
            wires += [*streamed.responses, task, listed]
            assert secret in str(zoo.servers[name].requests[1].body)
        await hook.until_told("TASK_STATE_COMPLETED")
        told = [each.content.decode() for each in (*hook.taken, *hook.refused)]

    assert [wire for wire in (*map(MessageToJson, wires), *told) if secret in wire] == []
    kept = await redis_keys_with(zoo.everloop.redis_url, secret)
    assert {":transcript:" in key for key in kept} == {True}
