"""What a client may ask of a send: history, output modes, metadata, unknown fields (A2A 1.0 §3.2, §5.7)."""

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from tests.conformance.bindings import Binding, refusal
from tests.conformance.messages import ASKS, COMPLETES, WRITES_FILE, WRITES_TEXT, fresh, message


async def _conversation(agent: Binding) -> pb.Task:
    """Return a task whose history has several messages."""
    asking = await agent.send(message(ASKS))
    return await agent.send(message(ASKS, taskId=asking.id))


async def test_without_a_history_length_the_sent_message_is_in_the_history(agent: Binding) -> None:
    """Unset: the server's default amount, which is all of it here (§3.2.4)."""
    request = message(COMPLETES)
    task = await agent.send(request)
    assert request.message.message_id in {said.message_id for said in task.history}


async def test_no_history_where_none_is_wanted(agent: Binding) -> None:
    """0: no history, on send, get and list (§3.2.4)."""
    task = await agent.send(message(COMPLETES, configuration={"historyLength": 0}))
    assert not task.history
    assert not (await agent.get(task.id, historyLength=0)).history
    page = await agent.list(contextId=task.context_id, historyLength=0)
    assert [list(one.history) for one in page.tasks] == [[]]


async def test_at_most_so_many_messages_and_the_newest(agent: Binding) -> None:
    """n: the n newest messages, on send, get and list (§3.2.4)."""
    task = await _conversation(agent)
    whole = list((await agent.get(task.id)).history)
    assert len(whole) > 2
    for wanted in (1, 2, len(whole) + 5):
        assert list((await agent.get(task.id, historyLength=wanted)).history) == whole[-wanted:]
        page = await agent.list(contextId=task.context_id, historyLength=wanted)
        assert list(page.tasks[0].history) == whole[-wanted:]
    again = await agent.send(message(ASKS, taskId=task.id, configuration={"historyLength": 1}))
    assert len(again.history) == 1


async def test_the_history_has_the_messages_of_both_sides_in_order(agent: Binding) -> None:
    """The history holds what was said: the client's message, the agent's question, the answer (§3.7)."""
    first = message(ASKS)
    asking = await agent.send(first)
    answer = message(COMPLETES, taskId=asking.id)
    done = await agent.send(answer)
    ids = [said.message_id for said in done.history]
    assert ids.index(first.message.message_id) < ids.index(answer.message.message_id)
    assert {said.role for said in done.history} == {pb.ROLE_USER, pb.ROLE_AGENT}
    assert {(said.task_id, said.context_id) for said in done.history} == {(done.id, done.context_id)}


async def test_a_negative_history_length_is_refused(agent: Binding) -> None:
    """It is validated before anything happens, on send, get and list (§3.3.2)."""
    refused = await refusal(agent.send(message(COMPLETES, configuration={"historyLength": -1})))
    assert refused.reason == "INVALID_PARAMS"
    assert "historyLength" in refused.message
    task = await agent.send(message(COMPLETES))
    assert (await refusal(agent.get(task.id, historyLength=-1))).reason == "INVALID_PARAMS"
    assert (await refusal(agent.list(historyLength=-1))).reason == "INVALID_PARAMS"


@pytest.mark.parametrize("modes", [[], ["text/plain"], ["image/png", "text/plain"], ["*/*"], ["text/*"]])
async def test_accepted_output_modes_that_the_agent_has_are_served(agent: Binding, modes: list[str]) -> None:
    """None, or one that the agent can write, is enough (§3.2.2)."""
    task = await agent.send(message(WRITES_TEXT, configuration={"acceptedOutputModes": modes}))
    assert task.status.state == pb.TASK_STATE_COMPLETED


async def test_output_modes_that_the_agent_has_not_are_refused(agent: Binding) -> None:
    """If the agent can write nothing that the client takes, the content type is not supported (§3.3.2)."""
    refused = await refusal(
        agent.send(message(COMPLETES, configuration={"acceptedOutputModes": ["video/x-nobody-writes-this"]}))
    )
    assert refused.reason == "CONTENT_TYPE_NOT_SUPPORTED"


async def test_the_metadata_of_a_message_are_kept(agent: Binding) -> None:
    """Metadata are any JSON, and come back with the message in the history (§3.2.5)."""
    metadata = {"https://example.com/place/v1": {"lat": 37.5, "tags": ["a", None, True]}, "n": 7}
    request = message(COMPLETES, metadata=metadata)
    task = await agent.send(request)
    said = next(one for one in task.history if one.message_id == request.message.message_id)
    assert MessageToDict(said.metadata) == metadata


async def test_extensions_that_nobody_knows_are_ignored(agent: Binding) -> None:
    """A message that names an unknown extension is served as if it did not (§4.6.3)."""
    uri = "https://example.com/extensions/nobody-knows/v1"
    task = await agent.send(message(COMPLETES, extensions=[uri], metadata={uri: {"a": 1}}))
    assert task.status.state == pb.TASK_STATE_COMPLETED


async def test_input_that_the_agent_does_not_take_is_refused(agent: Binding) -> None:
    """A part of a media type that is not in the card is a content type that is not supported (§3.1.1)."""
    part = {"raw": "aGVsbG8=", "mediaType": "video/x-nobody-reads-this", "filename": "film"}
    refused = await refusal(agent.send(message(COMPLETES, parts=[part])))
    assert refused.reason == "CONTENT_TYPE_NOT_SUPPORTED"


async def test_the_metadata_of_a_part_are_kept(agent: Binding) -> None:
    """A part may have metadata, which come back with it (§4.1.6)."""
    request = message(COMPLETES, parts=[{"text": "Please.", "metadata": {"a": "b"}}])
    task = await agent.send(request)
    (said,) = [one for one in task.history if one.role == pb.ROLE_USER]
    assert MessageToDict(said.parts[0].metadata) == {"a": "b"}


async def test_the_extensions_of_a_message_are_kept(agent: Binding) -> None:
    """The URIs that a message names, and the tasks it refers to, come back with it (§4.1.4)."""
    earlier = await agent.send(message(COMPLETES))
    uri = "https://example.com/extensions/nobody-knows/v1"
    task = await agent.send(message(COMPLETES, extensions=[uri], referenceTaskIds=[earlier.id]))
    (said,) = [one for one in task.history if one.role == pb.ROLE_USER]
    assert (list(said.extensions), list(said.reference_task_ids)) == ([uri], [earlier.id])


async def test_references_to_tasks_are_taken(agent: Binding) -> None:
    """A message may refer to other tasks of its sender (§3.4.3)."""
    earlier = await agent.send(message(WRITES_TEXT))
    task = await agent.send(message(COMPLETES, contextId=earlier.context_id, referenceTaskIds=[earlier.id]))
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert task.id != earlier.id


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
async def test_each_kind_of_part_is_taken_and_shown_as_it_came(
    agent: Binding, part: dict[str, object]
) -> None:
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
async def test_results_are_artifacts(agent: Binding, behaviour: str, expected: dict[str, object]) -> None:
    """What a task makes is in its artifacts, each with an id and at least one part (§3.7, §4.1.7)."""
    task = await agent.send(message(behaviour))
    artifacts = [MessageToDict(artifact) for artifact in task.artifacts]
    assert all(artifact["artifactId"] and artifact["parts"] for artifact in artifacts)
    parts = [part for artifact in artifacts for part in artifact["parts"]]
    assert any(expected.items() <= part.items() for part in parts), parts


async def test_a_small_file_comes_with_its_bytes(agent: Binding) -> None:
    """What an agent wrote is in the part itself where it is small (own rule; kits look for it)."""
    task = await agent.send(message(WRITES_FILE))
    (part,) = [part for artifact in task.artifacts for part in artifact.parts]
    assert part.raw


async def test_the_agent_says_things_in_the_status(agent: Binding) -> None:
    """A message in the status is the agent's, and has an id and parts (§3.7, §4.1.4)."""
    task = await agent.send(message(COMPLETES))
    said = task.status.message
    assert said.role == pb.ROLE_AGENT
    assert said.message_id
    assert [part.text for part in said.parts] == ["Hello from TCK"]


async def test_a_direct_answer_is_a_message_without_a_task(agent: Binding) -> None:
    """An agent may answer with a Message; then there is no task, and the context is told (§3.1.1, §3.4.1)."""
    answer = await agent.call("SendMessage", message("tck-message-response"))
    assert answer.WhichOneof("payload") == "message"
    assert answer.message.role == pb.ROLE_AGENT
    assert answer.message.message_id
    assert answer.message.context_id
    assert not answer.message.task_id
    assert not (await agent.list(contextId=answer.message.context_id)).tasks


async def test_an_id_that_is_none_is_refused(agent: Binding) -> None:
    """Ids with control characters or of a megabyte are invalid, in whatever field (§3.3.2, §13.4)."""
    for bad in ("a\x00b", "x" * 1_000_000):
        for field in ("message_id", "context_id", "task_id"):
            request = message(COMPLETES)
            setattr(request.message, field, bad)
            refused = await refusal(agent.send(request))
            assert refused.reason == "INVALID_PARAMS", field
    assert (await refusal(agent.get(fresh("task") + "\x07"))).reason == "INVALID_PARAMS"
