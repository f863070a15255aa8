"""Wrong input, wherever it comes from, has a clear end; nothing hangs and no stack trace leaves."""

import pytest
from a2a.types.a2a_pb2 import Task, TaskState
from a2a.utils.errors import InvalidParamsError

from everloop.agents.tool_arguments import MAX_RESULT_BYTES
from tests.acceptance.conftest import Steady
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.servers.scripted_openai import Refusal, Reply, tool_call


async def _run(steady: Steady) -> Task:
    async with connected(steady.url, streaming=False) as client:
        return await send(client, request("Go."))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "invent",
            "{}",
            "no tool 'invent'; available tools: write_line, write_slowly, write_once, repeat, report",
        ),
        ("repeat", '{"text": "x", ', "Invalid JSON"),
        ("repeat", '{"text": "x", "times": "many"}', "- times: Input should be a valid integer"),
    ],
    ids=["unknown_tool", "invalid_json", "wrong_type"],
)
async def test_a_wrong_tool_call_goes_back_to_the_model(
    steady: Steady, name: str, arguments: str, expected: str
) -> None:
    """The model reads what was wrong and may do better; the task goes on."""
    steady.model.script = [Reply([tool_call(name, arguments)]), Reply(["I see."])]

    task = await _run(steady)

    assert response_of(task) == "I see."
    (result,) = steady.model.requests[1].tool_results
    assert expected in result


async def test_a_large_tool_result_is_cut_for_the_model(steady: Steady) -> None:
    """The note says how much there was."""
    size = MAX_RESULT_BYTES + 40_000
    arguments = f'{{"text": "x", "times": {size}}}'
    steady.model.script = [Reply([tool_call("repeat", arguments)]), Reply(["Much."])]

    task = await _run(steady)

    assert response_of(task) == "Much."
    (result,) = steady.model.requests[1].tool_results
    assert f"[40000 of {size} bytes were cut" in result


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [(Refusal(401, "invalid_api_key"), "OPENAI_API_KEY"), (Refusal(404, "model_not_found"), "scripted")],
    ids=["wrong_key", "unknown_model"],
)
async def test_a_provider_that_refuses_ends_the_task(steady: Steady, refusal: Refusal, expected: str) -> None:
    """One attempt, and a status that names the cause and what to check."""
    steady.model.script = [refusal]

    task = await _run(steady)

    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert expected in task.status.message.parts[0].text
    assert len(steady.model.requests) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "empty"), ("x" * 11_000_000, "10000000")],
    ids=["empty_message", "eleven_megabytes"],
)
async def test_a_message_that_cannot_be_taken_is_refused(steady: Steady, text: str, expected: str) -> None:
    """The error names the limit or what is missing; no task is started."""
    async with connected(steady.url, streaming=False) as client:
        with pytest.raises(InvalidParamsError) as refused:
            await send(client, request(text))

    assert expected in str(refused.value).replace(",", "")
    assert "Traceback" not in str(refused.value)
