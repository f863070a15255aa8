"""Views that workflows answered, made whole for clients."""

from everloop.gateway.errors import PayloadsUnavailableError
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts import shown
from everloop.stores.artifacts.interface import Artifacts
from everloop.workflows.contract.tasks import TaskView


async def with_artifacts(view: TaskView, artifacts: Artifacts, max_bytes: int) -> TaskView:
    """Return a view with what the task has put out besides its answer, which its workflow does not keep.

    Of artifacts for which a view of `max_bytes` has no room, it has links.

    Raises:
        PayloadsUnavailableError: the content cannot be read now.
    """
    try:
        return await shown.with_artifacts(view, artifacts, max_bytes)
    except BlobsUnavailableError as error:
        raise PayloadsUnavailableError from error
