"""SendMessage: a message of any size starts one task; its references reach the model."""

import asyncio

import pytest
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2 import SendMessageRequest, TaskState
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl, RequestLimits
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart
from everloop.workflows.contract.names import AGENT_ID, CONTEXT_ID, OWNER, place_in_queues
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import Named, PromptModel, RunningGateway, StoodIn, running_gateway, unique
from tests.support.a2a_client import connected, request, send


async def test_a_client_that_waits_too_long_gets_the_task_as_it_stands(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> None:
    """A blocking call ends after the blocking timeout, without an error."""
    prompt, gate = unique("endless"), asyncio.Event()
    model.scripts[prompt] = [gate]
    async with (
        running_gateway(client, views, queue=queue, blocking_timeout=0.1) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(prompt))
    gate.set()
    assert task.status.state in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}


async def test_the_same_message_sent_often_is_one_task(blocking: A2AClient, model: PromptModel) -> None:
    """Twenty identical sends at once start one task, and all get its one answer."""
    message = request(unique("same"))
    tasks = await asyncio.gather(*(send(blocking, message) for _ in range(20)))
    assert all(task == tasks[0] for task in tasks)
    assert tasks[0].status.state == TaskState.TASK_STATE_COMPLETED
    assert len([call for call in model.calls if call.task.task_id == tasks[0].id]) == 1


_NOTHING: dict[str, None] = dict.fromkeys(("raw", "url", "data", "metadata", "filename", "mediaType"))
_OLD_NOTHING: dict[str, None] = dict.fromkeys(("file", "data", "metadata"))
_NULLS: dict[str, tuple[str, str, dict[str, object], Part]] = {
    "text before null": ("1.0", "SendMessage", {"text": "hi", **_NOTHING}, TextPart(text="hi")),
    "text behind null": ("1.0", "SendMessage", {**_NOTHING, "text": "hi"}, TextPart(text="hi")),
    "url before null": (
        "1.0",
        "SendMessage",
        {"text": None, "url": "https://a/b", "data": None},
        FilePart(url="https://a/b", media_type="application/octet-stream"),
    ),
    "null alone": ("1.0", "SendMessage", {**_NOTHING, "text": None}, DataPart(data=None)),
    "REST": ("1.0", "/message:send", {"text": "hi", **_NOTHING}, TextPart(text="hi")),
    "0.3": ("0.3", "message/send", {"kind": "text", "text": "hi", **_OLD_NOTHING}, TextPart(text="hi")),
    "REST of 0.3": ("0.3", "/v1/message:send", {"text": "hi", **_OLD_NOTHING}, TextPart(text="hi")),
}


@pytest.mark.parametrize("case", _NULLS)
async def test_null_is_no_content_beside_some(gateway: RunningGateway, model: PromptModel, case: str) -> None:
    """Clients of .NET, Java and pydantic write null for all missing fields of a part."""
    version, method, part, expected = _NULLS[case]
    message_id, is_rest = unique("null"), method.startswith("/")
    role = "user" if method == "message/send" else "ROLE_USER"
    parts = "content" if method.startswith("/v1") else "parts"
    params = {"message": {"messageId": message_id, "role": role, parts: [part]}}
    headers = {"A2A-Version": version}
    sent = (
        gateway.http.post(method, json=params, headers=headers)
        if is_rest
        else gateway.call(method, params, **headers)
    )

    assert "error" not in (await sent).json()
    said = [each for call in model.calls for each in call.new]
    assert next(each for each in said if each.message_id == message_id).parts == (expected,)


@pytest.mark.parametrize("changed", ["text", "context", "message id"])
async def test_another_message_is_another_task(blocking: A2AClient, changed: str) -> None:
    """Same id with other content, or same content with another id: a new task."""
    prompt, message_id, context_id = unique("this"), unique("message"), unique("context")
    first = request(prompt, message_id=message_id)
    first.message.context_id = context_id
    second = SendMessageRequest()
    second.CopyFrom(first)
    match changed:
        case "text":
            second.message.parts[0].text += "!"
        case "context":
            second.message.context_id += "!"
        case _:
            second.message.message_id += "!"
    tasks = [await send(blocking, first), await send(blocking, second)]
    assert tasks[0].id != tasks[1].id
    assert tasks[0].context_id == context_id


async def test_a_started_task_can_be_found_in_temporal(blocking: A2AClient, client: Client) -> None:
    """The workflow id is the task id; search attributes and summary name its owner and purpose."""
    prompt = unique("summary") + " ö" * 300
    task = await send(blocking, request(prompt))
    description = await client.get_workflow_handle(task.id).describe()
    attributes = description.typed_search_attributes
    assert (attributes[AGENT_ID], attributes[OWNER]) == ("staged", "anonymous")
    assert attributes[CONTEXT_ID] == task.context_id
    summary = await description.static_summary()
    assert summary
    assert summary.startswith(f"Staged: {prompt[:20]}")
    assert len(summary.encode()) <= 200


async def test_a_started_task_has_its_place_in_queues(client: Client, views: TaskViews) -> None:
    """Owners share queues equally, and the agent sets the priority."""
    agent = Agent(id="urgent", name="U", description="U.", model="scripted", priority=2)
    owner, queue, access = unique("owner"), unique("nobody"), AccessControl(Named(), RequestLimits())
    async with (
        running_gateway(client, views, queue=queue, agent=agent, access=access) as gateway,
        connected(gateway.url, streaming=False, headers={"owner": owner}) as a2a,
    ):
        task = await send(a2a, request(unique("place"), return_immediately=True))
        run = client.get_workflow_handle(task.id)
        place = (await run.describe()).raw_description.workflow_execution_info.priority
        await run.terminate()
    wanted = place_in_queues(owner, 2)
    assert (place.priority_key, place.fairness_key) == (2, wanted.fairness_key)


def refer(text: str, *task_ids: str, task_id: str = "") -> pb.SendMessageRequest:
    """Return a message that refers to tasks."""
    message = request(text, task_id=task_id, return_immediately=bool(task_id))
    message.message.reference_task_ids.extend(task_ids)
    return message


async def test_a_model_gets_the_results_of_referenced_tasks(blocking: A2AClient, model: PromptModel) -> None:
    """Their artifacts and states go along with the message, which shows the ids that the client gave."""
    first = await send(blocking, request(unique("a survey")))
    second = await send(blocking, refer(unique("shorten it"), first.id, first.id))
    (reference,) = model.calls[-1].new[0].references
    assert (reference.task_id, reference.state) == (first.id, "completed")
    assert first.artifacts[0].parts[0].text == reference.answer
    assert list(second.history[0].reference_task_ids) == [first.id]


async def test_a_follow_up_may_refer_too(stand_in: RunningGateway, client: Client, views: TaskViews) -> None:
    """A message to a running task brings the results of others; of a task without results, its state."""
    async with connected(stand_in.url, streaming=False) as a2a:
        other = await send(a2a, request(unique("other"), return_immediately=True))
        started = await send(a2a, request(unique("this"), return_immediately=True))
        task = StoodIn(client, views, started)
        await task.publish(State.INPUT_REQUIRED)
        await send(a2a, refer("see there", other.id, task_id=task.id))
    (reference,) = (await task.messages())[-1].references
    assert (reference.task_id, reference.state) == (other.id, "submitted")


async def test_the_newest_references_count(blocking: A2AClient, model: PromptModel) -> None:
    """BeeAI's chats refer to all their tasks: the eleventh would have ended them."""
    first = await send(blocking, request(unique("first")))
    tasks = [await send(blocking, request(unique("next"), context_id=first.context_id)) for _ in range(10)]
    ids = [each.id for each in tasks]
    last = await send(blocking, refer(unique("last"), unique("gone"), first.id, ids[3], *ids))

    assert [each.task_id for each in model.calls[-1].new[0].references] == ids
    assert list(last.history[0].reference_task_ids) == ids


async def test_a_task_that_is_not_there_cannot_be_referred_to(gateway: RunningGateway) -> None:
    """No task starts: the error names the unknown task."""
    missing = unique("missing")
    context = unique("context")

    def params(ids: list[str]) -> dict[str, object]:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "contextId": context}
        return {"message": {**message, "referenceTaskIds": ids}}

    unknown = await gateway.call("SendMessage", params([missing]))
    listed = await gateway.call("ListTasks", {"contextId": context})
    assert unknown.json()["error"]["code"] == -32001
    assert missing in unknown.json()["error"]["message"]
    assert listed.json()["result"]["totalSize"] == 0
