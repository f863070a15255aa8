"""Fills the transcript cache again."""

from temporalio import activity

from everloop.activities.call_lease import begin_attempt
from everloop.activities.transcript_cache import put_messages
from everloop.stores.leases import Leases
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.calls import StoreTranscriptInput
from everloop.workflows.contract.ports import TranscriptPort


class CachedTranscripts(TranscriptPort):
    """Writes to the store that model calls read."""

    def __init__(self, transcripts: Transcripts, leases: Leases) -> None:
        self._transcripts = transcripts
        self._leases = leases

    @activity.defn
    async def store_transcript(self, call: StoreTranscriptInput) -> None:
        task = call.task
        name = f"transcript {task.run_id} {activity.info().activity_id}"
        lease = await begin_attempt(self._leases, task.task_id, name)
        await put_messages(self._transcripts, task, call.start, call.messages, lease)
