"""The demo model speaks OpenAI's wire format and says that it is scripted."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionMessageParam,
)

from everloop.agents.agent import Agent
from everloop.deploy.demo_model.script import MODEL, SCRIPTED
from everloop.deploy.local.readiness import http_answers, probing_client
from everloop.deploy.local.servers import LOOPBACK, free_port
from everloop.examples.demo import DemoSettings, make_agent
from tests.support.servers.processes import ServerProcess, wait_until_answers

KEY = {"Authorization": "Bearer any"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[ServerProcess, str]]:
    port = free_port()
    log = tmp_path_factory.mktemp("demo-model") / "log"
    process = ServerProcess(
        [sys.executable, "-m", "everloop.deploy.demo_model", "--port", str(port), "--delay", "0"], log
    )
    url = f"http://{LOOPBACK}:{port}/v1"
    process.start()
    try:
        async with probing_client() as client:
            await wait_until_answers(
                process, lambda: http_answers(client, f"{url}/models", KEY), "demo model"
            )
        yield process, url
    finally:
        process.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: tuple[ServerProcess, str]) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="any", base_url=server[1], max_retries=0) as connected:
        yield connected


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def offered(agent: Agent) -> list[ChatCompletionFunctionToolParam]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "parameters": cast("dict[str, object]", tool.parameters)},
        }
        for tool in agent.tools.values()
    ]


async def play(client: AsyncOpenAI, agent: Agent, prompt: str) -> tuple[list[list[str]], str]:
    """Run the real tools until the model answers; return the names of each round's calls, and the answer."""
    messages = user(prompt)
    rounds: list[list[str]] = []
    while True:
        completion = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=offered(agent)
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return rounds, message.content or ""
        calls = [
            call for call in message.tool_calls if isinstance(call, ChatCompletionMessageFunctionToolCall)
        ]
        rounds.append([call.function.name for call in calls])
        messages.append(cast("ChatCompletionMessageParam", message.model_dump(exclude_none=True)))
        for call in calls:
            content = await run(agent, call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def run(agent: Agent, name: str, arguments: str) -> str:
    tool = agent.tools[name]
    tool.arguments.model_validate_json(arguments)
    return "noted" if tool.context_parameter else str(await tool.function(**json.loads(arguments)))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    (tmp_path / "src").mkdir()
    for name, lines in {"a.py": 7, "b.md": 5, "c.txt": 3, "d.toml": 1}.items():
        (tmp_path / "src" / name).write_text("a needle\n" * lines)
    (tmp_path / "src" / "e.bin").write_bytes(b"x" * 1000)
    return make_agent(DemoSettings(directory=tmp_path))


async def test_the_survey_reports_what_the_tools_really_found(client: AsyncOpenAI, agent: Agent) -> None:
    """List, then read and search in parallel, then add up; the numbers in the report are true."""
    rounds, answer = await play(client, agent, 'Look at the directory `src` and search for "NEEDLE"')

    assert rounds == [
        ["list_files"],
        ["read_file", "read_file", "read_file", "search_files"],
        ["calculate", "calculate"],
    ]
    assert "`src/a.py`: 7 lines, 63 bytes" in answer
    assert "15 lines and 135 bytes" in answer
    assert "found 16 lines" in answer
    assert answer.startswith(SCRIPTED)


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ("What is (2 + 3) * 4 / 7?", "(2 + 3) * 4 / 7 → 20/7 ≈"),
        ("Count to 12, please", "1 2 3 4 5 6 7 8 9 10 11 12"),
        ("Write a poem", "set OPENAI_API_KEY and EVERLOOP_MODEL"),
    ],
)
async def test_every_answer_says_that_it_is_scripted(
    client: AsyncOpenAI, agent: Agent, prompt: str, part: str
) -> None:
    """Nobody can take the script for a language model; what it cannot do, it says with the way out."""
    _, answer = await play(client, agent, prompt)

    assert SCRIPTED in answer
    assert part in answer


def after(prompt: str, name: str, content: str) -> list[ChatCompletionMessageParam]:
    """Return a conversation in which one tool was called and answered."""
    call: ChatCompletionMessageFunctionToolCallParam = {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": "{}"},
    }
    return [
        *user(prompt),
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": content},
    ]


@pytest.mark.parametrize(
    ("messages", "calls"),
    [
        (user("Count to 30"), 0),
        (user("Look at the directory `src`"), 1),
        (after("Look at the directory `src`", "list_files", "a.py (7 bytes)\nb.py (8 bytes)"), 2),
    ],
    ids=["text", "call", "parallel calls"],
)
async def test_a_stream_adds_up_to_the_whole_answer(
    client: AsyncOpenAI, agent: Agent, messages: list[ChatCompletionMessageParam], calls: int
) -> None:
    """Text, calls, finish reason and usage are the same whether streamed or not; call ids are always new."""
    whole = await client.chat.completions.create(model=MODEL, messages=messages, tools=offered(agent))
    async with client.chat.completions.stream(
        model=MODEL, messages=messages, tools=offered(agent), stream_options={"include_usage": True}
    ) as stream:
        streamed = await stream.get_final_completion()

    assert streamed.choices[0].message.content == whole.choices[0].message.content
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason
    assert streamed.usage == whole.usage
    functions, ids = calls_of(streamed)
    other_functions, other_ids = calls_of(whole)
    assert functions == other_functions
    assert len(ids | other_ids) == 2 * calls


def calls_of(completion: ChatCompletion) -> tuple[list[tuple[str, str]], set[str]]:
    """Return the functions with their arguments, and the ids."""
    calls = completion.choices[0].message.tool_calls or []
    functions = [c for c in calls if isinstance(c, ChatCompletionMessageFunctionToolCall)]
    return [(c.function.name, c.function.arguments) for c in functions], {c.id for c in functions}
