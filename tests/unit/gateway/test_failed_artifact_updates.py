"""What a client hears of an artifact that stays unfinished while its task goes on."""

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from everloop.gateway.operations.updates import UpdateTranslator
from everloop.runtime.protocol.tasks import FAILED_ARTIFACT
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.tasks import TaskState
from tests.unit.gateway.shown_tasks import AT, URL, chunk, view


@pytest.mark.parametrize(("content", "texts"), [("", [""]), ("b", ["b", ""])])
def test_an_artifact_that_failed_is_told_once(content: str, texts: list[str]) -> None:
    """At once, behind the content that comes with it; not again when the task fails later."""
    translator = UpdateTranslator(view(), URL, extended=False)
    translator.translate(chunk(0, "a", artifact_id="log"))

    updates = translator.translate(chunk(1, content, artifact_id="log").model_copy(update={"failed": True}))
    ends = translator.translate(StatusChanged(version=2, state=TaskState.FAILED, at=AT))

    told = [update for update in updates if isinstance(update, pb.TaskArtifactUpdateEvent)]
    assert [update.artifact.parts[0].text for update in told] == texts
    assert all(update.append for update in told)
    assert [update.last_chunk for update in told] == [False] * (len(texts) - 1) + [True]
    assert MessageToDict(told[-1].artifact.metadata) == FAILED_ARTIFACT
    assert [type(update) for update in ends] == [pb.TaskStatusUpdateEvent]
