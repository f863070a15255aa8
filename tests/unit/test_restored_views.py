"""Views that workflows answered, made whole from the store."""

from gateway.restored_views import with_artifacts
from stores.artifacts import Create, NewPart
from stores.memory_artifacts import MemoryArtifacts
from tests.unit.shown_tasks import artifact, view
from workflows.contract.messages import TextPart
from workflows.contract.names import context_key


async def test_what_the_workflow_shows_is_not_shown_twice() -> None:
    """An artifact in the store under an id that the view has is left out: ids are told apart by clients."""
    known, store = view(artifact(TextPart(text="said"))), MemoryArtifacts()
    for artifact_id in ("response", "log"):
        change = Create(task_id=known.task_id, parts=(NewPart(kind="text", content=b"stored"),))
        await store.apply(context_key(known.owner, known.context_id), artifact_id, change)

    whole = await with_artifacts(known, store)

    assert [(each.artifact_id, each.parts) for each in whole.artifacts] == [
        ("log", (TextPart(text="stored"),)),
        ("response", (TextPart(text="said"),)),
    ]
