"""The answer while it is written: the chunks of the artifact `response`."""

from activities.attempt_number import is_shared
from workflows.contract.events import FINAL_ATTEMPT, RESPONSE_ARTIFACT, ArtifactChunk
from workflows.contract.messages import TextPart

DRAFTS_PER_ATTEMPT = 10
"""How many draft numbers an attempt has; the last one is for the end of the call. The others last for a
minute of failed publishes."""

_LAST_ATTEMPT = FINAL_ATTEMPT // DRAFTS_PER_ATTEMPT - 1
"""The workflow completes the draft under FINAL_ATTEMPT, so every draft number must stay below."""


class ResponseDraft:
    """Numbers the chunks that one activity attempt publishes, so that the fold keeps one whole answer.

    Nobody can tell whether a publish that failed took effect. What follows is therefore a new draft
    (`restart`), which replaces the old one from the first character on. An attempt has its own range of draft
    numbers; when that is used up, `append` returns None until the end of the call. `attempt` is numbered by
    `attempt_number`.
    """

    def __init__(self, position: int, attempt: int) -> None:
        self._position = position
        attempt = min(attempt, _LAST_ATTEMPT)
        first = attempt * DRAFTS_PER_ATTEMPT
        self._last = first + DRAFTS_PER_ATTEMPT - 1
        # A draft that another attempt may have begun under the same number cannot be continued.
        self._number = self._last if is_shared(attempt) else first
        self._index = 0
        self._written: list[str] = []
        self.is_shown = attempt > 1
        """Whether the view may show what this call has to take back if it ends without an answer: a draft of
        this attempt or of one before, or the answer to earlier messages."""
        self.is_newest = attempt < _LAST_ATTEMPT
        """Whether its end surely takes the place of every earlier draft; if not, the workflow sees to it."""

    def append(self, text: str) -> ArtifactChunk | None:
        """Return the chunk that adds a text."""
        self._written.append(text)
        return None if self._number == self._last else self._continue(text, last_chunk=False)

    def finish(self, text: str) -> list[ArtifactChunk]:
        """Return what adds the last text, which may be empty, and completes the answer.

        If the draft lost its beginning meanwhile (Redis was emptied), it cannot be continued. The whole
        answer therefore follows; the fold drops it where the draft is complete.
        """
        self._written.append(text)
        is_whole = not self._index
        last = self._continue(text, last_chunk=True)
        return [last] if is_whole else [last, self.replace("".join(self._written))]

    def replace(self, text: str) -> ArtifactChunk:
        """Return the chunk that completes the answer with this text, whatever was written before."""
        self._number, self._index = self._last, 0
        return self._chunk(text, last_chunk=True)

    def withdraw(self) -> ArtifactChunk:
        """Return the chunk that leaves an empty draft."""
        self._number, self._index = self._last, 0
        return self._chunk("", last_chunk=False)

    def restart(self) -> None:
        """Begin a new draft with the next chunk: it will carry the whole text."""
        if self._index:
            self._number, self._index = self._number + 1, 0

    def _continue(self, text: str, *, last_chunk: bool) -> ArtifactChunk:
        return self._chunk(text if self._index else "".join(self._written), last_chunk=last_chunk)

    def _chunk(self, text: str, *, last_chunk: bool) -> ArtifactChunk:
        chunk = ArtifactChunk(
            artifact_id=RESPONSE_ARTIFACT,
            name=RESPONSE_ARTIFACT,
            position=self._position,
            attempt=self._number,
            index=self._index,
            part=TextPart(text=text),
            last_chunk=last_chunk,
        )
        self._index += 1
        self.is_shown = True
        return chunk
