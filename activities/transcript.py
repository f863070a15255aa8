"""Fills the transcript cache again."""

from temporalio import activity

from stores.transcripts import Transcripts
from workflows.contract.calls import StoreTranscriptInput
from workflows.contract.ports import TranscriptPort


class CachedTranscripts(TranscriptPort):
    """Writes to the store that model calls read."""

    def __init__(self, transcripts: Transcripts) -> None:
        self._transcripts = transcripts

    @activity.defn
    async def store_transcript(self, call: StoreTranscriptInput) -> None:
        await self._transcripts.put(call.task.task_id, call.task.run_id, call.start, call.messages)
