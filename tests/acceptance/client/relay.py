"""A TCP relay before a server that cuts connections in the middle of answers."""

from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.servers.relay import Connection, Relay


@dataclass
class CuttingRelay(Relay):
    """Cuts each connection after so many bytes of answers.

    `budgets` are those of the next connections, one after another; later ones are not cut.
    """

    budgets: list[int] = field(default_factory=list[int])
    cuts: int = 0
    _left: dict[Connection, int] = field(default_factory=dict[Connection, int])

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def answered(self, connection: Connection, piece: bytes) -> bytes:
        if connection not in self._left and self.budgets:
            self._left[connection] = self.budgets.pop(0)
        left = self._left.get(connection, len(piece))
        if len(piece) > left:
            connection.client.write(piece[:left])
            with suppress(OSError):
                await connection.client.drain()
            self.cuts += 1
            connection.cut()
            raise ConnectionAbortedError
        if connection in self._left:
            self._left[connection] -= len(piece)
        return piece
