"""The answer while it is written: the chunks of the artifact `response`."""

import json

from everloop.activities.draft_numbers import DraftNumbers
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk
from everloop.workflows.contract.messages import Part, TextPart

MAX_WHOLE_BYTES = 64_000
"""Of an answer as JSON. One that is not larger is sent once more, whole, at its end: some clients read
nothing but the last update of an artifact."""


class ResponseDraft:
    """Makes the chunks that one activity attempt publishes of the answer; see `DraftNumbers`.

    When the numbers of the attempt are used up, `append` returns None until the end of the call.
    """

    def __init__(self, position: int, attempt: int) -> None:
        self._position = position
        self._numbers = DraftNumbers(attempt)
        self._written: list[str] = []
        self.is_shown = not self._numbers.is_first_attempt
        """Whether the view may show what this call has to take back if it ends without an answer: a draft of
        this attempt or of one before, or the answer to earlier messages."""
        self.is_newest = self._numbers.is_newest
        """Whether its end surely takes the place of every earlier draft; if not, the workflow sees to it."""

    def append(self, text: str) -> ArtifactChunk | None:
        """Return the chunk that adds a text."""
        self._written.append(text)
        if self._numbers.is_spent:
            return None
        written = text if self._numbers.has_begun else "".join(self._written)
        return self._chunk(TextPart(text=written), last_chunk=False)

    def finish(self, text: str) -> list[ArtifactChunk]:
        """Return what adds the last text, which may be empty, and completes the answer.

        A large answer ends with its last piece. If the draft lost its beginning meanwhile (Redis was
        emptied), it cannot be continued; the whole answer therefore follows, which the fold drops where the
        draft is complete.
        """
        self._written.append(text)
        whole = "".join(self._written)
        if not self._numbers.has_begun or _size(whole) <= MAX_WHOLE_BYTES:
            return [self.replace(whole)]
        return [self._chunk(TextPart(text=text), last_chunk=True), self.replace(whole)]

    def replace(self, text: str) -> ArtifactChunk:
        """Return the chunk that completes the answer with this text, whatever was written before."""
        return self.complete(TextPart(text=text))

    def complete(self, answer: Part) -> ArtifactChunk:
        """Return the chunk that is the whole answer, whatever was written before."""
        self._numbers.end()
        return self._chunk(answer, last_chunk=True)

    def withdraw(self) -> ArtifactChunk:
        """Return the chunk that leaves an empty draft."""
        self._numbers.end()
        return self._chunk(TextPart(text=""), last_chunk=False)

    def restart(self) -> None:
        """Begin a new draft with the next chunk: it will carry the whole text."""
        self._numbers.restart()

    def _chunk(self, part: Part, *, last_chunk: bool) -> ArtifactChunk:
        self.is_shown = True
        return ArtifactChunk(
            artifact_id=RESPONSE_ARTIFACT,
            name=RESPONSE_ARTIFACT,
            position=self._position,
            attempt=self._numbers.draft,
            index=self._numbers.next_index(),
            part=part,
            last_chunk=last_chunk,
        )


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace"))
