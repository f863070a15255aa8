"""How many streams and waiting requests a gateway process holds open, in all and of one owner."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from everloop.gateway.instruments import record_refused
from everloop.gateway.refusals import TooManyRequestsError, UnavailableNowError

RETRY_AFTER = 10
"""Seconds after which a client may try again: nobody knows when a stream ends."""


class OpenStreams:
    """Each costs a connection and memory for as long as its client likes, whether anything happens or not.

    They are counted in this process alone: they end with it.
    """

    def __init__(self, most: int, most_of_owner: int) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._open = Counter[str]()

    @contextmanager
    def hold(self, owner: str) -> Generator[None]:
        """Count one for as long as the block lasts.

        Raises:
            TooManyRequestsError: the owner has as many as one may have.
            UnavailableNowError: the process has as many as it may; another one may have room.
        """
        if self._open[owner] >= self._most_of_owner:
            record_refused("streams")
            raise TooManyRequestsError(
                f"too many open streams: this server holds {self._most_of_owner} streams and waiting "
                "requests of one owner; close one, or try again later",
                retry_after=RETRY_AFTER,
            )
        if self._open.total() >= self._most:
            record_refused("streams")
            raise UnavailableNowError(
                "this server holds as many streams as it can; try again, at another one if there is one",
                retry_after=RETRY_AFTER,
            )
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]
