"""The answer while it is written: the chunks of the artifact `response`."""

import json

from everloop.workflows.contract.events import (
    FINAL_ATTEMPT,
    MAX_COMPLETE_BYTES,
    RESPONSE_ARTIFACT,
    ArtifactChunk,
)
from everloop.workflows.contract.messages import Part, TextPart

# Orders all chunks that the attempts of all calls for one reply publish.

ATTEMPTS_PER_TRY = 1000
"""Limit of numbers per call; from its 999th attempt on, attempts share the last one."""


def attempt_number(tries: int, attempt: int) -> int:
    """Return the number of an attempt after `tries` calls for the same position.

    `attempt` is counted as in `OpenedTranscript.attempt`, from 1. Temporal's own count does not work: it
    restarts when an operator resets the activity, and the view would keep the chunks of earlier attempts.
    """
    return tries * ATTEMPTS_PER_TRY + min(attempt, ATTEMPTS_PER_TRY - 1)


# Numbers of the chunks that one activity attempt publishes of one artifact.

DRAFTS_PER_ATTEMPT = 10
"""Draft numbers of an attempt; the last one is for the end of the call. The others last for a minute of
failed publishes."""

_LAST_ATTEMPT = FINAL_ATTEMPT // DRAFTS_PER_ATTEMPT - 1
"""The workflow completes the answer under FINAL_ATTEMPT, so every draft number must stay below."""


class DraftNumbers:
    """Counts drafts, and the chunks of each, so that the fold keeps one complete draft.

    The outcome of a failed publish is unknown. The next chunk therefore begins a new draft (`restart`) from
    the first character. An attempt has its own range of draft numbers. When `is_spent`, nothing is published
    until the end of the call, which has the last number (`end`). `attempt` comes from `attempt_number`.
    """

    def __init__(self, attempt: int) -> None:
        attempt = min(attempt, _LAST_ATTEMPT)
        first = attempt * DRAFTS_PER_ATTEMPT
        self._last = first + DRAFTS_PER_ATTEMPT - 1
        # A draft that another attempt may have begun under the same number cannot be continued.
        is_shared = attempt % ATTEMPTS_PER_TRY == ATTEMPTS_PER_TRY - 1
        self.draft = self._first = self._last if is_shared else first
        self.index = 0
        self.is_first_attempt = attempt <= 1
        self.is_newest = attempt < _LAST_ATTEMPT
        """True if the end certainly replaces every earlier draft."""

    @property
    def is_spent(self) -> bool:
        return self.draft == self._last

    @property
    def has_begun(self) -> bool:
        """True if the current draft has a chunk."""
        return self.index > 0

    @property
    def is_first(self) -> bool:
        """True if this is the first draft of all attempts."""
        return self.is_first_attempt and self.draft == self._first

    def take(self, count: int = 1) -> int:
        """Return the index of the first of the next chunks, and count them."""
        index, self.index = self.index, self.index + count
        return index

    def restart(self) -> None:
        """Begin a new draft with the next chunk, unless the current one has no chunk yet."""
        if self.has_begun:
            self.draft, self.index = self.draft + 1, 0

    def end(self) -> None:
        """Begin the last draft of the attempt with the next chunk."""
        self.draft, self.index = self._last, 0


class ResponseDraft:
    """Makes the chunks that one activity attempt publishes of the answer; see `DraftNumbers`.

    When the numbers of the attempt are used up, `append` returns None until the end of the call.
    """

    def __init__(self, position: int, attempt: int) -> None:
        self._position = position
        self._numbers = DraftNumbers(attempt)
        self._written: list[str] = []
        self.is_published = not self._numbers.is_first_attempt
        """True if the view may show a text that this call has to withdraw if it ends without an answer: a
        draft of this or an earlier attempt, or the answer to earlier messages."""
        self.is_newest = self._numbers.is_newest
        """True if its end certainly replaces every earlier draft. If not, the workflow replaces them."""

    def append(self, text: str) -> ArtifactChunk | None:
        """Return the chunk that adds a text."""
        self._written.append(text)
        if self._numbers.is_spent:
            return None
        written = text if self._numbers.has_begun else "".join(self._written)
        return self._chunk(TextPart(text=written), last_chunk=False)

    def finish(self, text: str) -> list[ArtifactChunk]:
        """Return the chunks that add the last text, which may be empty, and complete the answer.

        A large answer ends with its last piece. If the draft has lost its beginning (Redis was emptied), it
        cannot be continued. The complete answer therefore follows, which the fold drops if the draft is
        complete.
        """
        self._written.append(text)
        full_text = "".join(self._written)
        sent = json.dumps(full_text, ensure_ascii=False) if self._numbers.has_begun else ""
        if len(sent.encode(errors="replace")) <= MAX_COMPLETE_BYTES:
            return [self.complete(TextPart(text=full_text))]
        return [self._chunk(TextPart(text=text), last_chunk=True), self.complete(TextPart(text=full_text))]

    def complete(self, answer: Part) -> ArtifactChunk:
        """Return the chunk with the complete answer, which replaces earlier text."""
        self._numbers.end()
        return self._chunk(answer, last_chunk=True)

    def withdraw(self) -> ArtifactChunk:
        """Return the chunk that leaves an empty draft."""
        self._numbers.end()
        return self._chunk(TextPart(text=""), last_chunk=False)

    def restart(self) -> None:
        """Begin a new draft with the next chunk, which will carry the complete text."""
        self._numbers.restart()

    def _chunk(self, part: Part, *, last_chunk: bool) -> ArtifactChunk:
        self.is_published = True
        return ArtifactChunk(
            artifact_id=RESPONSE_ARTIFACT,
            name=RESPONSE_ARTIFACT,
            position=self._position,
            attempt=self._numbers.draft,
            index=self._numbers.take(),
            part=part,
            last_chunk=last_chunk,
        )
