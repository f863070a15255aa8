"""The switch between the machines, a process: `python -m tests.machines.switch SEED PORTS`.

PORTS is a JSON object, address → descriptor of the interface. Each line of its input holds all faults from
now on, by number; it answers with the number of packets that each fault before has harmed. It ends with its
input, and the interfaces of all machines end with it.
"""

import heapq
import json
import os
import selectors
import socket
import sys
import time
from dataclasses import dataclass
from random import Random

_LONGEST = 65_536
_PACKETS_AT_ONCE = 256


@dataclass
class _Rule:
    """A fault in the form of the switch."""

    source: bytes
    target: bytes
    loss: float
    delay: float
    harmed: int = 0

    def applies(self, packet: bytes) -> bool:
        """True if the packet goes from the source to the target, by its IPv4 header."""
        return packet[12:16].startswith(self.source) and packet[16:20].startswith(self.target)


class Switch:
    """Forwards packets of IPv4 between interfaces."""

    def __init__(self, seed: int, ports: dict[str, int]) -> None:
        self._chance = Random(seed)  # noqa: S311 -- repeatable on purpose
        self._ports = {socket.inet_aton(address): port for address, port in ports.items()}
        self._rules: dict[str, _Rule] = {}
        self._delayed: list[tuple[float, int, bytes]] = []
        self._count = 0

    def run(self) -> None:
        """Forward until the input ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(sys.stdin, selectors.EVENT_READ)
            for port in self._ports.values():
                selector.register(port, selectors.EVENT_READ)
            is_told = True
            while is_told:
                ready = {key.fd for key, _ in selector.select(self._until_due())}
                for port in self._ports.values():
                    self._read(port)
                if sys.stdin.fileno() in ready:  # last: earlier packets count as before
                    is_told = self._obey(sys.stdin.readline())
                self._send_due()

    def _until_due(self) -> float | None:
        return max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else None

    def _obey(self, line: str) -> bool:
        if not line:
            return False
        harmed = {number: rule.harmed for number, rule in self._rules.items()}
        wanted = json.loads(line)
        self._rules = {number: self._rules.get(number) or self._rule(**wanted[number]) for number in wanted}
        print(json.dumps(harmed), flush=True)  # noqa: T201 -- the answer to the parent process
        return True

    def _rule(self, *, source: str, target: str, loss: float, delay: float) -> _Rule:
        ends = [socket.inet_aton(each) if each else b"" for each in (source, target)]
        return _Rule(ends[0], ends[1], loss, delay)

    def _read(self, port: int) -> None:
        for _ in range(_PACKETS_AT_ONCE):
            try:
                packet = os.read(port, _LONGEST)
            except BlockingIOError:
                return
            if packet[0] >> 4 == socket.IPPROTO_IPIP:  # version 4
                self._forward(packet)

    def _forward(self, packet: bytes) -> None:
        delay = 0.0
        for rule in self._rules.values():
            if rule.applies(packet):
                if rule.loss and self._chance.random() < rule.loss:
                    rule.harmed += 1
                    return
                if rule.delay:
                    rule.harmed += 1
                    delay = max(delay, rule.delay)
        if not delay:
            self._send(packet)
            return
        self._count += 1
        heapq.heappush(self._delayed, (time.monotonic() + delay, self._count, packet))

    def _send_due(self) -> None:
        while self._delayed and self._delayed[0][0] <= time.monotonic():
            self._send(heapq.heappop(self._delayed)[2])

    def _send(self, packet: bytes) -> None:
        port = self._ports.get(packet[16:20])
        if port is not None:
            try:
                os.write(port, packet)
            except OSError:  # its queue is full, or it is gone: then it is lost, as in any network
                return


if __name__ == "__main__":
    Switch(int(sys.argv[1]), json.loads(sys.argv[2])).run()
