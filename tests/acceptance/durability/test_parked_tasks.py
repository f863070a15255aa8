"""A task that waits for people costs nothing and survives every failure."""

from pathlib import Path

from a2a.types.a2a_pb2 import SubscribeToTaskRequest, TaskState

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.rigs.people import PEOPLE_AGENT, Harness, call, effects, say
from tests.support.servers.processes import redis_answers, temporal_answers, wait_until_answers
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


async def test_a_parked_task_outlives_everything(tmp_path: Path, model: ScriptedOpenAI, ledger: Path) -> None:
    """It takes no slot of a worker.

    It is answered after all processes were killed, and subscribers get it.
    """
    model.script = [
        Reply([call("pay", {"amount": 2000, "to": "Ann", "ledger": str(ledger)})]),
        Reply(["Another."]),
        Reply(["Done."]),
    ]
    one_slot = {"EVERLOOP_MAX_CONCURRENT_ACTIVITIES": "1"}
    async with running_deployment(tmp_path, model.base_url, agents=PEOPLE_AGENT, **one_slot) as everloop:
        await everloop.add_worker()
        harness = Harness(model, everloop, await everloop.add_gateway())
        async with connected(harness.gateway.url, streaming=False) as client:
            parked = await send(client, request("Go."))
            other = await send(client, request("Work on something else."))
        details = await harness.details(parked.id)
        described = await (await harness.workflow(parked.id)).describe()
        await _crash(everloop)

        await everloop.add_worker()
        first, second = await everloop.add_gateway(), await everloop.add_gateway()
        async with connected(first.url) as client, connected(second.url, streaming=False) as answering:
            subscription = client.subscribe(SubscribeToTaskRequest(id=parked.id))
            rest = Answer()
            rest.add(await anext(subscription))
            task = await send(answering, say(parked.id, "yes"))
            await rest.read(subscription)

    assert response_of(other) == "Another."
    assert "**input-required**: waiting" in details
    assert list(described.raw_description.pending_activities) == []
    assert rest.responses[0].task == parked
    assert rest.states[-1] == task.status.state == TaskState.TASK_STATE_COMPLETED
    assert rest.text == response_of(task) == "Done."
    assert effects(ledger) == [[2000, "Ann"]]
    assert harness.tool_results == ["paid 2000 to Ann"]


async def _crash(everloop: Deployment) -> None:
    """Kill every process, and start the servers again."""
    for process in (*everloop.started, everloop.valkey, everloop.temporal):
        process.kill()
    url, address = everloop.redis_url, everloop.temporal_address
    everloop.valkey.start()
    everloop.temporal.start()
    await wait_until_answers(everloop.valkey, lambda: redis_answers(url), "valkey")
    await wait_until_answers(everloop.temporal, lambda: temporal_answers(address), "temporal")
