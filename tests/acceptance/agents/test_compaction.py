"""A conversation that is too long to be recalled whole, and a worker that dies while it is summed up."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client

from tests.acceptance.agents.test_memory_and_plugins import in_context
from tests.acceptance.agents.test_sub_agents import AGENTS
from tests.support.a2a_client import connected, request, send
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI, tool_call

HEADING = "[Summary of earlier conversation]\n"


@pytest.mark.parametrize(
    ("strategy", "written"),
    [
        ("summary", ["All of it."]),
        pytest.param("hierarchical", ["The first.", "The others."], marks=pytest.mark.slow),
    ],
)
async def test_a_conversation_is_summed_up_in_spite_of_a_kill(
    model: ScriptedOpenAI, tmp_path: Path, strategy: str, written: list[str]
) -> None:
    """The summary that was being written is asked for again. All is summed up once, and recalled once.

    A block of four would end between the call and its result: it takes neither of them.
    """
    summaries = [Reply(["Half of", asyncio.Event()]), *(Reply([text]) for text in written)]
    arguments = json.dumps({"folder": str(tmp_path), "gate": ""})
    answers = [Reply([said]) for said in ("a1", tool_call("write_once", arguments), "a2", "a3", "a4")]
    model.script = _answering(answers, summaries)

    async with running_deployment(tmp_path, model.base_url, agents=AGENTS) as everloop:
        worker = await everloop.add_worker()
        gateway = await everloop.add_gateway()
        temporal = await Client.connect(everloop.temporal_address)
        async with connected(f"{gateway.url}/agents/{strategy}", streaming=False) as client:
            context = (await send(client, request("q1"))).context_id
            second = await send(client, in_context("q2", context))
            await model.request(4)
            worker.kill()
            await everloop.add_worker()
            await temporal.get_workflow_handle(second.id).result()
            third = await send(client, in_context("q3", context))
            await temporal.get_workflow_handle(third.id).result()
            await send(client, in_context("q4", context))

    asked_before, *asked = [notes for received in model.requests if (notes := _notes(received))]
    assert asked_before == asked[0]
    called, result, answer = asked[-1][-3:]
    begun = ["[user]\nq1", "[assistant]\na1", "[user]\nq2"]
    assert [message for notes in asked for message in notes] == [*begun, called, result, answer]
    assert called.startswith("[assistant]\n(calls write_once")
    assert result.startswith("[result of write_once")
    assert answer == "[assistant]\na2"
    *_, of_third, of_fourth = [received for received in model.requests if not _notes(received)]
    assert _recalled(of_third) == [HEADING + written[0], "q2", None, "created", "a2", "q3"]
    assert _recalled(of_fourth) == [*(HEADING + text for text in written), "q3", "a3", "q4"]


def _answering(answers: list[Reply], summaries: list[Reply]) -> Callable[[ReceivedRequest], Reply]:
    return lambda received: (summaries if _notes(received) else answers).pop(0)


def _notes(received: ReceivedRequest) -> list[str]:
    """Return the messages that the model is to sum up; none if it is asked for something else."""
    text = str(received.conversation[-1]["content"])
    inner = text.removeprefix("<conversation>\n").removesuffix("\n</conversation>")
    return inner.split("\n\n") if inner != text else []


def _recalled(received: ReceivedRequest) -> list[JsonValue]:
    return [message["content"] for message in received.conversation]
