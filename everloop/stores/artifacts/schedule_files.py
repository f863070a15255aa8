"""Files of the messages of schedules, stored as long as the schedule.

They are artifacts of a context of the schedule's own. Each task of the schedule gets copies, which live as
long as its other artifacts.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from redis.asyncio import Redis

from everloop.runtime.blobs import Blobs
from everloop.stores.artifacts.artifact_errors import ArtifactMissingError
from everloop.stores.artifacts.artifact_store import Artifacts, ArtifactSettings, make_artifacts
from everloop.stores.artifacts.changes import NewPart
from everloop.stores.lifetimes import RetentionSettings
from everloop.workflows.contract.names import context_key

WITHOUT_END = timedelta(days=36_500)


class ScheduleFiles:
    """Files by owner and id of the schedule. `lasting` stores artifacts `WITHOUT_END`."""

    def __init__(self, artifacts: Artifacts, lasting: Artifacts) -> None:
        self._artifacts = artifacts
        self._lasting = lasting

    async def bring(self, owner: str, schedule_id: str, files: Mapping[str, NewPart]) -> None:
        """Store files, by their ids, for a schedule that is about to be created. They expire if it is not.

        Existing files of the schedule are not touched: they would expire as well.
        """
        context = _context_of(owner, schedule_id)
        for artifact_id, part in files.items():
            try:
                await self._artifacts.get_artifact(context, artifact_id)
            except ArtifactMissingError:
                await self._artifacts.put_input(context, artifact_id, part, schedule_id)

    async def keep(self, owner: str, schedule_id: str, files: Mapping[str, NewPart]) -> None:
        """Keep the files of a schedule as long as the schedule, and remove its earlier files."""
        for artifact_id, part in files.items():
            await self._lasting.put_input(_context_of(owner, schedule_id), artifact_id, part, schedule_id)
        await self.remove(owner, schedule_id, but=files)

    async def remove(self, owner: str, schedule_id: str, *, but: Mapping[str, NewPart] | None = None) -> None:
        """Remove the files of a schedule, all `but` these."""
        context = _context_of(owner, schedule_id)
        for artifact in await self._lasting.list_artifacts(context):
            if artifact.artifact_id not in (but or {}):
                await self._lasting.delete_artifact(context, artifact.artifact_id)

    async def hand_out(
        self, owner: str, schedule_id: str, task: tuple[str, str], files: Sequence[str]
    ) -> None:
        """Copy these files to a task, given by its id and its context. Repeating it changes nothing.

        Raises:
            ArtifactMissingError: A file is missing.
        """
        task_id, context_id = task
        source = _context_of(owner, schedule_id)
        for artifact_id in files:
            (part,) = (await self._lasting.get_artifact(source, artifact_id)).parts
            pieces = [piece async for piece in self._lasting.read_part(source, artifact_id)]
            copy = NewPart("file", b"".join(pieces), part.media_type, part.filename)
            await self._artifacts.keep_input(context_key(owner, context_id), artifact_id, copy, task_id)


def context_of_schedule(schedule_id: str) -> str:
    """Return the context id of the files of a schedule."""
    return f"schedule {schedule_id}"


def _context_of(owner: str, schedule_id: str) -> str:
    return context_key(owner, context_of_schedule(schedule_id))


def make_schedule_files(
    settings: ArtifactSettings, redis: Redis, blobs: Blobs, retention: RetentionSettings
) -> ScheduleFiles:
    """Return the store of these settings. It does not close its arguments."""
    limit = settings.artifact_inline_bytes
    lasting = Artifacts(redis, blobs, ttl=WITHOUT_END, inline_limit=limit)
    return ScheduleFiles(make_artifacts(settings, redis, blobs, retention), lasting)
