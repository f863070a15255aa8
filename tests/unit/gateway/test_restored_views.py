"""Views that workflows answered, made whole from the store."""

from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.artifacts.rendering import with_artifacts
from everloop.workflows.contract.messages import FilePart, TextPart
from everloop.workflows.contract.names import context_key
from tests.support.memory.artifacts import MemoryArtifacts
from tests.unit.gateway.rendered_tasks import view


async def test_what_has_no_room_is_a_link() -> None:
    """All artifacts are there; their content only as long as the view is small enough."""
    known, store, content = view(), MemoryArtifacts(), b"x" * 1_000
    for artifact_id in ("a", "b", "c"):
        change = Create(task_id=known.task_id, parts=(NewPart(kind="text", content=content),), complete=True)
        await store.apply(context_key(known.owner, known.context_id), artifact_id, change)
    whole = await with_artifacts(known, store, 3_000)
    assert sorted(each.artifact_id for each in whole.artifacts) == ["a", "b", "c"]
    kinds = [type(part) for each in whole.artifacts for part in each.parts]
    assert kinds == [TextPart, TextPart, FilePart]
    assert len(whole.model_dump_json()) < 3_000 + 500
