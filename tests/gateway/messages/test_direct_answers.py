"""Messages to agents that decide by themselves: answered at once, or taken up as a task."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.gateway.context import ANONYMOUS
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.names import derive_task_id
from tests.gateway.harness import RunningGateway, running_gateway, unique, working
from tests.gateway.tasks.silent_tasks import delete
from tests.support.a2a_client import connected, request, send
from tests.support.fakes.ports import ScriptedModel, answer

AUTO = Agent(id="staged", name="Auto", description="Decides.", model="scripted", routing="auto")


@asynccontextmanager
async def deciding(client: Client, views: TaskViews, model: ScriptedModel) -> AsyncGenerator[RunningGateway]:
    """Serve an agent that decides, with a worker that plays the replies of a model."""
    queue = unique("auto")
    async with (
        working(client, views, queue, model),
        running_gateway(client, views, queue=queue, agent=AUTO) as gateway,
    ):
        yield gateway


async def test_no_task_is_shown_for_an_answer_at_once(client: Client, views: TaskViews) -> None:
    """Lists and lookups have no task for it, though its id could be derived."""
    context = unique("context")
    async with deciding(client, views, ScriptedModel(answer("Four."))) as gateway:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "2 + 2"}], "contextId": context}
        sent = await gateway.call("SendMessage", {"message": message})
        listed = await gateway.call("ListTasks", {"contextId": context})
        content = b'["%s",[{"kind":"text","text":"2 + 2"}]]' % context.encode()
        hidden = derive_task_id(ANONYMOUS, AUTO.id, "m", content)
        described = await client.get_workflow_handle(hidden).describe()
        found = await gateway.call("GetTask", {"id": hidden})
        canceled = await gateway.call("CancelTask", {"id": hidden})
    assert described.id == hidden
    assert sent.json()["result"]["message"]["contextId"] == context
    assert listed.json()["result"]["totalSize"] == 0
    assert [answer_.json()["error"]["code"] for answer_ in (found, canceled)] == [-32001, -32001]


async def test_an_answer_at_once_stands_in_its_conversation(client: Client, views: TaskViews) -> None:
    """The conversation has the question and times, though its context has no task."""
    context = unique("context")
    async with deciding(client, views, ScriptedModel(answer("Four."))) as gateway:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "2 + 2"}], "contextId": context}
        await gateway.call("SendMessage", {"message": message})
        address = f"/everloop/v1/contexts/{context}"
        shown = (await gateway.http.get(address)).json()["context"]
        said = (await gateway.http.get(f"{address}/messages")).json()["messages"]

    assert (shown["title"], shown["tasks"], shown["agents"]) == ("2 + 2", 0, [AUTO.id])
    assert [each["role"] for each in said] == ["user", "assistant"]
    assert (said[0]["message"]["parts"], said[1]["text"]) == ([{"text": "2 + 2"}], "Four.")
    assert all(each["at"] for each in said)


async def test_all_who_send_the_same_message_hear_the_same(client: Client, views: TaskViews) -> None:
    """Twenty sends at once are one decision, on any number of gateways. A key is for one message."""
    model, key = ScriptedModel(answer("Four."), answer("Four.")), {"Idempotency-Key": unique("key")}
    async with deciding(client, views, model) as gateway:
        asked = request(unique("2 + 2"))
        async with connected(gateway.url, streaming=False) as a2a:

            async def ask() -> list[pb.StreamResponse]:
                return [response async for response in a2a.send_message(asked)]

            replies = await asyncio.gather(*(ask() for _ in range(20)))
        assert len(model.calls) == 1
        for text in ("2 + 2", "Delete all"):
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
            keyed = await gateway.call("SendMessage", {"message": message}, **key)
    assert keyed.json()["error"]["code"] == -32602
    assert all(reply == replies[0] for reply in replies)


@pytest.mark.slow
async def test_an_answer_outlives_its_workflow(client: Client, views: TaskViews) -> None:
    """After Temporal's retention the same message gets the same answer, without a call of the model."""
    asked, key = request(unique("2 + 2")), {"Idempotency-Key": unique("key")}
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "2 + 2"}]}}
    other = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Delete all"}]}}
    model = ScriptedModel(answer("Four."), answer("Four."))
    async with deciding(client, views, model) as gateway, connected(gateway.url, streaming=False) as a2a:
        first = [response async for response in a2a.send_message(asked)]
        keyed = await gateway.call("SendMessage", body, **key)
        for call in model.calls:
            await delete(client, call.task.task_id)
        again = [response async for response in a2a.send_message(asked)]
        keyed_again = await gateway.call("SendMessage", body, **key)
        refused = await gateway.call("SendMessage", other, **key)
    assert again == first
    assert keyed_again.json()["result"] == keyed.json()["result"]
    assert refused.json()["error"]["code"] == -32602
    assert len(model.calls) == 2


async def test_an_undecided_message_whose_workflow_was_ended_is_a_failed_task(
    client: Client, views: TaskViews
) -> None:
    """An operator terminated it: the client gets a failed task with the reason."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(_call: CallModelInput) -> AssistantMessage:
        begun.set()
        await gate.wait()
        return answer("Four.")

    model = ScriptedModel(slow)
    async with deciding(client, views, model) as gateway:
        asked = request(unique("2 + 2"))
        async with connected(gateway.url, streaming=False) as a2a:
            sending = asyncio.create_task(send(a2a, asked))
            await begun.wait()
            await client.get_workflow_handle(model.calls[0].task.task_id).terminate(reason="enough")
            gate.set()
            task = await sending
            again = await send(a2a, asked)
    assert task.status.state == again.status.state == pb.TASK_STATE_FAILED
    assert "enough" in task.status.message.parts[0].text
