"""The network of the tests itself: it applies the given faults, and no others."""

import socket
import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.machines.network import Fault, Host, Network, one_way, partition, require_namespaces

PORT = 5000


class End(NamedTuple):
    """A machine, and a socket for datagrams on it; it waits a second at most for one."""

    host: Host
    datagrams: socket.socket

    def send(self, text: str, other: "End") -> None:
        self.datagrams.sendto(text.encode(), (other.host.address, PORT))

    def receive(self) -> str:
        return self.datagrams.recv(100).decode()


class Pair(NamedTuple):
    """Two machines, and their network."""

    network: Network
    one: End
    other: End


@pytest.fixture
def pair() -> Generator[Pair]:
    require_namespaces()
    with Network(seed=1) as network, ExitStack() as sockets:
        one, other = network.add_host("one"), network.add_host("other")
        network.start()
        ends = [
            End(host, sockets.enter_context(host.call(lambda h=host: _bound(h)))) for host in (one, other)
        ]
        yield Pair(network, *ends)


def _bound(host: Host) -> socket.socket:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((host.address, PORT))
    datagrams.settimeout(5)
    return datagrams


def test_a_one_way_partition_loses_one_direction_alone(pair: Pair) -> None:
    """Lost packets stay lost; the other direction works meanwhile, and both work afterwards."""
    network, one, other = pair
    with network.suffers(one_way(one.host, other.host)) as harm:
        one.send("lost", other)
        other.send("heard", one)
        assert one.receive() == "heard"
    one.send("healed", other)

    assert other.receive() == "healed"
    assert harm.packets == 1


def test_a_partition_loses_both_directions(pair: Pair) -> None:
    """Between these two machines alone: each still reaches others, here itself."""
    network, one, other = pair
    with network.suffers(partition(one.host, other.host)) as harm:
        one.send("lost", other)
        other.send("lost", one)
        one.send("to itself", one)
    one.send("healed", other)
    other.send("healed", one)

    assert [one.receive(), one.receive(), other.receive()] == ["to itself", "healed", "healed"]
    assert harm.packets == 2


def test_a_delay_holds_packets_back(pair: Pair) -> None:
    """They arrive, in order, and not before their time."""
    network, one, other = pair
    with network.suffers([Fault(delay=0.2)]) as harm:
        begun = time.monotonic()
        one.send("first", other)
        one.send("second", other)
        assert [other.receive(), other.receive()] == ["first", "second"]
        assert time.monotonic() - begun >= 0.2

    assert harm.packets == 2
