"""Views that workflows answered, made whole."""

from everloop.stores.artifacts import ArtifactMissingError, Artifacts, PartIndexError
from everloop.stores.shown_artifacts import shown_artifact
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import Artifact, TaskView


async def with_artifacts(view: TaskView, artifacts: Artifacts, max_bytes: int) -> TaskView:
    """Return a view with what the task has put out besides its answer, which its workflow does not keep.

    Of artifacts for which a view of `max_bytes` has no room, it has links.

    Raises:
        BlobsUnavailableError: the content cannot be read now.
    """
    known = {artifact.artifact_id for artifact in view.artifacts}
    shown: list[Artifact] = []
    room = max_bytes - len(view.model_dump_json().encode())
    for stored in await artifacts.list_artifacts(context_key(view.owner, view.context_id), view.task_id):
        if stored.is_input or stored.artifact_id in known:
            continue
        try:
            shown.append(await shown_artifact(artifacts, stored, room))
        except (ArtifactMissingError, PartIndexError):
            continue  # it was removed, or made anew, while we looked: whoever did that tells of it
        room -= len(shown[-1].model_dump_json().encode())
    return view.model_copy(update={"artifacts": (*shown, *view.artifacts)})
