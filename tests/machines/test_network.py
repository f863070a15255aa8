"""The network of the tests itself: it harms what it is told to, nothing else, and leaves nothing behind."""

import asyncio
import socket
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.machines.network import (
    Fault,
    Host,
    Network,
    forgotten_connections,
    one_way,
    partition,
    require_namespaces,
)
from tests.support.servers.processes import ServerProcess, wait_until_answers

PORT = 5000
PACKETS = 200


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
    """What is lost stays lost; the other direction works meanwhile, and both work afterwards."""
    network, one, other = pair
    with network.suffers(one_way(one.host, other.host)) as harm:
        one.send("lost", other)
        other.send("heard", one)
        assert one.receive() == "heard"
    one.send("healed", other)

    assert other.receive() == "healed"
    assert harm.packets == 1


def test_a_partition_loses_both_directions(pair: Pair) -> None:
    """Between these two machines alone: each still hears others, here itself."""
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


def test_loss_takes_some_packets(pair: Pair) -> None:
    """Each is lost or arrives, as often as is said."""
    network, one, other = pair
    with network.suffers([Fault(loss=0.5)]) as harm:
        for number in range(PACKETS):
            one.send(str(number), other)
    one.send("end", other)

    arrived = list(iter(other.receive, "end"))
    assert len(arrived) + harm.packets == PACKETS
    assert PACKETS / 4 < harm.packets < 3 * PACKETS / 4


def test_forgotten_connections_are_dead_and_new_ones_work(pair: Pair) -> None:
    """Neither end of an old connection is told."""
    network, one, other = pair

    def connect() -> socket.socket:
        return socket.create_connection((one.host.address, PORT), timeout=5)

    with ExitStack() as opened:
        listener = opened.enter_context(one.host.call(lambda: socket.create_server((one.host.address, PORT))))
        old = opened.enter_context(other.host.call(connect))
        accepted = opened.enter_context(listener.accept()[0])
        accepted.settimeout(0.5)
        with network.suffers(forgotten_connections(one.host, other.host)) as harm:
            old.sendall(b"lost")
            new = opened.enter_context(other.host.call(connect))
            other_accepted = opened.enter_context(listener.accept()[0])
            new.sendall(b"heard")
            assert other_accepted.recv(100) == b"heard"
            with pytest.raises(TimeoutError):
                accepted.recv(100)

    assert harm.packets


KILLED = """\
import time
from tests.machines.network import Network
from pathlib import Path
from tests.support.servers.processes import ServerProcess

with Network(seed=1) as network:
    host = network.add_host("one")
    network.start()
    process = ServerProcess(host.command(["sleep", "600"]), Path("{log}"))
    process.start()
    print("started", flush=True)
    time.sleep(600)
"""


async def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its machines' processes and its switch end with it, and so do namespaces, which have no names."""
    require_namespaces()
    code = KILLED.format(log=tmp_path / "machine.log")
    run = ServerProcess([sys.executable, "-c", code], tmp_path / "run.log")
    run.start()
    try:
        await wait_until_answers(run, lambda: _says_started(run), "the run")
        children = psutil.Process(run.pid).children(recursive=True)
        assert len(children) == 2
    finally:
        run.kill()

    _, alive = await asyncio.to_thread(psutil.wait_procs, children, timeout=20)
    assert not alive
    assert not Path(f"/proc/{run.pid}").exists()


async def _says_started(process: ServerProcess) -> bool:
    return "started" in process.output
