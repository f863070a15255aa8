"""Where a task stops by itself, and how it goes on when a model, a prompt or a tool fails."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState
from google.protobuf.json_format import MessageToDict, MessageToJson
from temporalio.client import Client

from everloop.activities.model.failures import FALL_BACK_AFTER
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Service, running_service
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import Answer as ModelAnswer
from tests.support.servers.scripted_openai import ReceivedRequest, Refusal, Reply, Script, Whole, tool_call

DECLINED = Whole(
    {"choices": [{"message": {"role": "assistant", "refusal": "I won't."}, "finish_reason": "stop"}]}
)
MODELS = """
[models."openai/first"]
price = { input = 1.0, output = 0.0 }

[models."openai/second"]
price = { input = 0.1, output = 0.0 }
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def limited(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    directory = tmp_path_factory.mktemp("limited")
    file = directory / "models.toml"
    file.write_text(MODELS)
    agents, variables = "tests.support.agents.limited:agent", {"EVERLOOP_MODELS_FILE": str(file)}
    async with running_service(directory, agents, **variables) as service:
        yield service


async def _run(service: Service, script: Script) -> Task:
    service.script(script)
    async with connected(service.gateway.url, streaming=False) as client:
        return await send(client, request("Go."))


def _note(usage: tuple[int, int] = (10, 5)) -> Reply:
    return Reply([tool_call("note", '{"text": "x"}')], usage=usage)


_DEAR = _note((600_000, 0))
"""Two of these are too many."""


async def test_a_task_stops_at_its_cost(limited: Service) -> None:
    """The model does not answer when it is asked to; the status names the limit, and the cost is known."""
    task = await _run(limited, [_DEAR] * 5)

    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert MessageToDict(task.status.message.metadata) == {"reason": "CostLimit"}
    assert "Limits(cost=...)" in task.status.message.parts[0].text
    usage = MessageToDict(task.metadata)["usage"]
    assert usage == {"inputTokens": 1_800_000, "outputTokens": 0, "cost": pytest.approx(1.8)}
    assert len(limited.model.requests) == 3


async def test_a_task_answers_at_its_limit(limited: Service) -> None:
    """With what it has; the model is told to, without tools, and the client what was reached."""
    task = await _run(limited, [*[_note()] * 20, Reply(["Half of it."])])

    assert (task.status.state, response_of(task)) == (TaskState.TASK_STATE_COMPLETED, "Half of it.")
    assert MessageToDict(task.status.message.metadata) == {"reason": "IterationLimit"}
    said = "the task has reached its limit of 20 iterations"
    assert task.status.message.parts[0].text == f"{said}; the answer is what there was by then"
    *_, before, last = limited.model.requests
    assert ("tools" in before.body, "tools" in last.body) == (True, False)
    assert f"[This is the last call: {said}." in str(last.messages[-1])


async def test_a_worker_killed_in_the_last_call(limited: Service) -> None:
    """Another worker makes it again, once, without tools; the client has one whole answer."""
    limited.script([_DEAR, _DEAR, Reply(["Half of", asyncio.Event()]), Reply(["Half of it."])])

    async with connected(limited.gateway.url) as client:
        reading = asyncio.create_task((answer := Answer()).read(client.send_message(request("Go."))))
        await until(lambda: answer.text == "Half of")
        await limited.replace_worker()
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "Half of it."
    assert (answer.finals, task.status.state) == (1, TaskState.TASK_STATE_COMPLETED)
    assert MessageToDict(task.status.message.metadata) == {"reason": "CostLimit"}
    assert ["tools" in received.body for received in limited.model.requests] == [True, True, False, False]


@pytest.mark.parametrize(
    ("script", "state", "answer", "reason"),
    [
        (
            [Reply(["Once "], finish_reason="length"), Reply(["upon a time."])],
            TaskState.TASK_STATE_COMPLETED,
            "Once upon a time.",
            "",
        ),
        (
            [Reply(["Once "], finish_reason="length")] * 2,
            TaskState.TASK_STATE_COMPLETED,
            "Once Once ",
            "ReplyCut",
        ),
        (
            [_note(), Reply(["Half of it"], finish_reason="content_filter")],
            TaskState.TASK_STATE_FAILED,
            "",
            "ContentFiltered",
        ),
        ([DECLINED], TaskState.TASK_STATE_REJECTED, "", "ModelDeclined"),
        ([Reply([]), Reply(["Done."])], TaskState.TASK_STATE_COMPLETED, "Done.", ""),
        ([Reply([]), Reply([])], TaskState.TASK_STATE_FAILED, "", "EmptyReply"),
    ],
    ids=["continued", "cut off", "filtered", "declined", "empty", "empty twice"],
)
async def test_a_task_says_how_its_replies_ended(
    limited: Service, script: Script, state: TaskState, answer: str, reason: str
) -> None:
    """Nothing ends as completed without a word; what is no answer is not shown as one."""
    task = await _run(limited, script)

    assert (task.status.state, response_of(task)) == (state, answer)
    assert MessageToDict(task.status.message.metadata) == ({"reason": reason} if reason else {})
    assert bool(task.status.message.parts) == bool(reason)
    assert "Half of it" not in MessageToJson(task)


async def test_another_model_stands_in(limited: Service) -> None:
    """The first model is refused once; its successor answers this call and those that follow."""
    task = await _run(limited, [Refusal(404, "model_not_found"), _note(), Reply(["Done."])])

    assert response_of(task) == "Done."
    assert [received.body["model"] for received in limited.model.requests] == ["first", "second", "second"]


async def test_another_model_stands_in_for_a_busy_one(limited: Service) -> None:
    """The first is asked once more, when it said; then the second answers."""
    busy = Refusal(429, headers={"retry-after-ms": "1"})
    task = await _run(limited, [*[busy] * FALL_BACK_AFTER, _note(), Reply(["Done."])])

    assert response_of(task) == "Done."
    assert [received.body["model"] for received in limited.model.requests] == [
        *["first"] * FALL_BACK_AFTER,
        *["second"] * 2,
    ]


async def test_a_prompt_that_is_too_long_is_summed_up(limited: Service) -> None:
    """The model gets the summary for the older messages; the transcript of the task stays whole."""
    asked: list[ReceivedRequest] = []

    def script(received: ReceivedRequest) -> ModelAnswer:
        if "tools" not in received.body:
            return Reply(["Four things were noted."])
        if len(received.messages) > 9:
            return Refusal(400, "context_length_exceeded")
        asked.append(received)
        return Reply(["Done."]) if len(asked) > 5 else _note()

    task = await _run(limited, script)
    client = await Client.connect(limited.everloop.temporal_address, data_converter=WIRE_DATA_CONVERTER)
    handle = client.get_workflow_handle_for(AgentTask.run, task.id)
    transcript = await handle.query(AgentTask.transcript, 0)

    assert response_of(task) == "Done."
    last = [str(message["content"]) for message in asked[-1].conversation]
    assert last[1] == "Go."
    assert "Four things were noted." in last[2]
    roles = [message.role for message in transcript.messages]
    assert roles.count("tool") == 5
    assert roles.count("summary") == 1
