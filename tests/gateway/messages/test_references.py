"""Messages that refer to other tasks: the model gets what came of them."""

from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client

from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import PromptModel, RunningGateway, StoodIn, unique
from tests.support.a2a_client import connected, request, send


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
    assert first.artifacts[0].parts[0].text in reference.text
    assert list(second.history[0].reference_task_ids) == [first.id]


async def test_a_follow_up_may_refer_too(stand_in: RunningGateway, client: Client, views: TaskViews) -> None:
    """A message to a running task brings the results of others; of a task without any, its state."""
    async with connected(stand_in.url, streaming=False) as a2a:
        other = await send(a2a, request(unique("other"), return_immediately=True))
        started = await send(a2a, request(unique("this"), return_immediately=True))
        task = StoodIn(client, views, started)
        await task.publish(State.INPUT_REQUIRED)
        await send(a2a, refer("see there", other.id, task_id=task.id))
    (reference,) = (await task.messages())[-1].references
    assert (reference.task_id, reference.state) == (other.id, "submitted")


async def test_a_task_that_is_not_there_cannot_be_referred_to(gateway: RunningGateway) -> None:
    """No task starts: the client is told which one is unknown, or how many are too many."""
    missing = unique("missing")
    context = unique("context")

    def params(ids: list[str]) -> dict[str, object]:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "contextId": context}
        return {"message": {**message, "referenceTaskIds": ids}}

    unknown = await gateway.call("SendMessage", params([missing]))
    too_many = await gateway.call("SendMessage", params([f"t{n}" for n in range(11)]))
    listed = await gateway.call("ListTasks", {"contextId": context})
    assert unknown.json()["error"]["code"] == -32001
    assert missing in unknown.json()["error"]["message"]
    assert "11 ids; a message may refer to 10" in too_many.json()["error"]["message"]
    assert listed.json()["result"]["totalSize"] == 0
