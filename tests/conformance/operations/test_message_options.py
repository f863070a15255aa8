"""Options of a send: history, output modes, metadata, unknown fields (A2A 1.0 §3.2, §5.7)."""

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from tests.conformance.messages import ASKS, COMPLETES, WRITES_FILE, WRITES_TEXT, message
from tests.support.wires.agent import Agent, refusal


async def _conversation(agent: Agent) -> pb.Task:
    """Return a task whose history has several messages."""
    asking = await agent.send(message(ASKS))
    return await agent.send(message(ASKS, taskId=asking.id))


async def test_at_most_so_many_messages_and_the_newest(agent: Agent) -> None:
    """n: the n newest messages, on send, get and list; 0: none; without n all of them (§3.2.4)."""
    task = await _conversation(agent)
    whole = list((await agent.get(task.id)).history)
    assert len(whole) > 2
    assert not (await agent.get(task.id, historyLength=0)).history
    for wanted in (1, 2, len(whole) + 5):
        assert list((await agent.get(task.id, historyLength=wanted)).history) == whole[-wanted:]
        page = await agent.list(contextId=task.context_id, historyLength=wanted)
        assert list(page.tasks[0].history) == whole[-wanted:]
    again = await agent.send(message(ASKS, taskId=task.id, configuration={"historyLength": 1}))
    assert len(again.history) == 1


async def test_the_history_has_the_messages_of_both_sides_in_order(agent: Agent) -> None:
    """The history holds the conversation: the client's message, the agent's question, the answer (§3.7)."""
    first = message(ASKS)
    asking = await agent.send(first)
    answer = message(COMPLETES, taskId=asking.id)
    done = await agent.send(answer)
    ids = [said.message_id for said in done.history]
    assert ids.index(first.message.message_id) < ids.index(answer.message.message_id)
    assert {said.role for said in done.history} == {pb.ROLE_USER, pb.ROLE_AGENT}
    assert {(said.task_id, said.context_id) for said in done.history} == {(done.id, done.context_id)}


@pytest.mark.parametrize("modes", [[], ["text/plain"], ["image/png", "text/plain"], ["*/*"], ["text/*"]])
async def test_accepted_output_modes_that_the_agent_has_are_served(agent: Agent, modes: list[str]) -> None:
    """None, or one that the agent can write, is enough (§3.2.2)."""
    task = await agent.send(message(WRITES_TEXT, configuration={"acceptedOutputModes": modes}))
    assert task.status.state == pb.TASK_STATE_COMPLETED


async def test_output_modes_that_the_agent_has_not_are_refused(agent: Agent) -> None:
    """If the agent can write none of the client's modes, the content type is not supported (§3.3.2)."""
    refused = await refusal(
        agent.send(message(COMPLETES, configuration={"acceptedOutputModes": ["video/x-nobody-writes-this"]}))
    )
    assert refused.reason == "CONTENT_TYPE_NOT_SUPPORTED"


async def test_input_that_the_agent_does_not_take_is_refused(agent: Agent) -> None:
    """A part of a media type that is not in the card is a content type that is not supported (§3.1.1)."""
    part = {"raw": "aGVsbG8=", "mediaType": "video/x-nobody-reads-this", "filename": "film"}
    refused = await refusal(agent.send(message(COMPLETES, parts=[part])))
    assert refused.reason == "CONTENT_TYPE_NOT_SUPPORTED"


async def test_what_comes_with_a_message_is_kept(agent: Agent) -> None:
    """Metadata of message and part, extensions, references (§3.2.5, §3.4.3, §4.1.4, §4.1.6)."""
    earlier, uri = await agent.send(message(WRITES_TEXT)), "https://example.com/extensions/nobody-knows/v1"
    metadata = {"https://example.com/place/v1": {"lat": 37.5, "tags": ["a", None, True]}, "n": 7}
    part = {"text": "Please.", "metadata": {"a": "b"}}
    request = message(
        COMPLETES, metadata=metadata, parts=[part], extensions=[uri], referenceTaskIds=[earlier.id]
    )
    task = await agent.send(request)
    (said,) = [one for one in task.history if one.role == pb.ROLE_USER]
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert MessageToDict(said.metadata) == metadata
    assert MessageToDict(said.parts[0].metadata) == {"a": "b"}
    assert (list(said.extensions), list(said.reference_task_ids)) == ([uri], [earlier.id])


@pytest.mark.parametrize(
    "part",
    [
        {"text": "some text", "mediaType": "text/plain"},
        {"data": {"deep": [{"er": 1.5}, None, "ü"]}, "mediaType": "application/json"},
        {"raw": "aGVsbG8=", "filename": "hello.txt", "mediaType": "text/plain"},
        {"url": "https://example.com/hello.txt", "filename": "hello.txt", "mediaType": "text/plain"},
    ],
    ids=["text", "data", "raw", "url"],
)
async def test_each_kind_of_part_is_taken_and_shown_as_it_came(agent: Agent, part: dict[str, object]) -> None:
    """Text, data, bytes and URLs are the kinds of a part; the history shows them unchanged (§4.1.6)."""
    request = message(COMPLETES, parts=[part])
    task = await agent.send(request)
    assert task.status.state == pb.TASK_STATE_COMPLETED
    said = next(one for one in task.history if one.message_id == request.message.message_id)
    assert list(said.parts) == list(request.message.parts)


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (WRITES_TEXT, {"text": "Generated text content"}),
        (WRITES_FILE, {"filename": "output.txt", "mediaType": "text/plain"}),
        ("tck-artifact-file-url", {"url": "https://example.com/output.txt", "filename": "output.txt"}),
        ("tck-artifact-data", {"data": {"key": "value", "count": 42}}),
    ],
)
async def test_results_are_artifacts(agent: Agent, behaviour: str, expected: dict[str, object]) -> None:
    """Results of a task are its artifacts, each with an id and at least one part (§3.7, §4.1.7)."""
    task = await agent.send(message(behaviour))
    artifacts = [MessageToDict(artifact) for artifact in task.artifacts]
    assert all(artifact["artifactId"] and artifact["parts"] for artifact in artifacts)
    parts = [part for artifact in artifacts for part in artifact["parts"]]
    assert any(expected.items() <= part.items() for part in parts), parts
    assert behaviour != WRITES_FILE or parts[0]["raw"]  # small enough to come with its bytes


async def test_the_agent_says_things_in_the_status(agent: Agent) -> None:
    """A message in the status is the agent's, and has an id and parts (§3.7, §4.1.4)."""
    task = await agent.send(message(COMPLETES))
    said = task.status.message
    assert said.role == pb.ROLE_AGENT
    assert said.message_id
    assert [part.text for part in said.parts] == ["Hello from TCK"]


async def test_a_direct_answer_is_a_message_without_a_task(agent: Agent) -> None:
    """An agent may answer with a Message that has a context, without a task (§3.1.1, §3.4.1)."""
    answer = await agent.call("SendMessage", message("tck-message-response"))
    assert answer.WhichOneof("payload") == "message"
    assert answer.message.role == pb.ROLE_AGENT
    assert answer.message.message_id
    assert answer.message.context_id
    assert not answer.message.task_id
    assert not (await agent.list(contextId=answer.message.context_id)).tasks
