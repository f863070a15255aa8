"""What became of the tasks that a message refers to (A2A 1.0 §4.1.4, referenceTaskIds), for its model."""

import json
from collections.abc import Sequence
from contextlib import ExitStack

from everloop.gateway.callers import Viewer
from everloop.gateway.errors import TaskTooLargeError
from everloop.gateway.large_tasks import LargeTasks
from everloop.gateway.snapshots import Snapshots
from everloop.workflows.contract.messages import DataPart, FilePart, Part, TaskReference, TextPart
from everloop.workflows.contract.tasks import Artifact, TaskView

MAX_CHARACTERS = 20_000
"""Of one task's results; the rest is cut off, and the text says so."""

NOTHING = "(nothing yet)"
TOO_LARGE = "(its results are too large to be shown here)"


class References:
    """Reads the results of tasks."""

    def __init__(self, snapshots: Snapshots, large: LargeTasks) -> None:
        self._snapshots = snapshots
        self._large = large

    async def read(self, task_ids: Sequence[str], viewer: Viewer) -> tuple[TaskReference, ...]:
        """Return what came of each task as it stands now.

        Raises:
            TaskUnknownError: one is not there for this viewer.
            UnavailableNowError: one is large, and there is no room for it now.
        """
        return tuple([await self._read(task_id, viewer) for task_id in task_ids])

    async def _read(self, task_id: str, viewer: Viewer) -> TaskReference:
        snapshot = await self._snapshots.take(task_id, viewer)
        try:
            with ExitStack() as held:
                view = (await self._large.whole(snapshot, held, history_length=0)).view
                text = _results(view)
        except TaskTooLargeError:
            view, text = snapshot.view, TOO_LARGE
        return TaskReference(task_id=task_id, state=view.status.state, text=text)


def _results(view: TaskView) -> str:
    """Return artifacts as text; of a task without any, its last words."""
    text = "\n\n".join(_describe(artifact) for artifact in view.artifacts)
    if not text and view.status.message:
        text = _joined(view.status.message.parts)
    if len(text) > MAX_CHARACTERS:
        return f"{text[:MAX_CHARACTERS]}\n[{len(text) - MAX_CHARACTERS} more characters were cut off]"
    return text or NOTHING


def _describe(artifact: Artifact) -> str:
    return f"[{artifact.name or artifact.artifact_id}]\n{_joined(artifact.parts)}"


def _joined(parts: Sequence[Part]) -> str:
    return "\n".join(_text(part) for part in parts)


def _text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return json.dumps(part.data, ensure_ascii=False)
        case FilePart():
            where = part.url or (f"artifact {part.stored.artifact_id!r}" if part.stored else "not shown here")
            return f"(file {part.filename or 'without a name'}, {part.media_type}: {where})"
