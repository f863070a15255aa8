"""Counts of bytes and of JSON values, while a response or a body is read. Loads no HTTP client."""

from dataclasses import KW_ONLY, dataclass

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of one response, or of one event of a stream."""

MAX_VALUES = 2_000_000
"""Values in the JSON of one of these; each costs about a hundred bytes."""

_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_LONGEST_END = 4


class AnswerTooLargeError(Exception):
    """The response exceeds a limit; the message says which."""


@dataclass(eq=False)
class AnswerBound:
    """Counts a response while it is read. In a stream of `events` each event is counted alone.

    `total`: limit in bytes of the whole stream (None: no limit).
    """

    limit: int = MAX_ANSWER
    values: int = MAX_VALUES
    _: KW_ONLY
    events: bool = False
    total: int | None = None

    def __post_init__(self) -> None:
        self._end = b""
        self._start_over()

    def feed(self, chunk: bytes) -> None:
        """Count a chunk.

        Raises:
            AnswerTooLargeError: it exceeds the limit.
        """
        if self.total is not None:
            self.total -= len(chunk)
            if self.total < 0:
                raise AnswerTooLargeError("its answer has more bytes than are read of a stream")
        if self.events:
            chunk = self._begun_event(chunk)
        self._size += len(chunk)
        if self._size > self.limit:
            raise AnswerTooLargeError(f"its answer has more than {self.limit:,} bytes")
        self._counted += self._count(chunk)
        if self._counted > self.values:
            raise AnswerTooLargeError(f"its answer has more than {self.values:,} values of JSON")

    def _start_over(self) -> None:
        self._size = self._counted = 0
        self._in_text = self._is_escaped = False

    def _begun_event(self, chunk: bytes) -> bytes:
        """Return the bytes of a chunk that belong to an event it does not finish.

        Events that end within the chunk were larger than counted by one network read at most.
        """
        joined = self._end + chunk
        last = 0
        for end in _EVENT_ENDS:
            if (at := joined.rfind(end)) >= 0:
                last = max(last, at + len(end))
        begun = len(self._end)
        self._end = joined[-_LONGEST_END:]
        if last <= begun:  # none has ended in this piece
            return chunk
        self._start_over()
        return joined[last:]

    def _count(self, chunk: bytes) -> int:
        """Count the marks before values: commas and brackets outside of strings."""
        if not chunk:  # what it would escape is still to come
            return 0
        if self._is_escaped:
            chunk = chunk[1:]
        stripped = chunk.rstrip(b"\\")
        self._is_escaped = bool((len(chunk) - len(stripped)) % 2)
        if self._is_escaped:
            chunk = chunk[:-1]
        pieces = chunk.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[1::2] if self._in_text else pieces[::2])
        self._in_text ^= len(pieces) % 2 == 0
        return sum(map(outside.count, (b",", b"[", b"{")))
