"""Several machines in one: network namespaces, and a switch between them that loses and delays packets.

Nothing of it has a name: a namespace lives as long as a process or a file descriptor holds it, and its one
interface as long as the switch does, which ends with the process that started it. So there is nothing to
clean up after a run that was killed, and runs on the same machine never meet.
"""

import ctypes
import fcntl
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Self, TypeVar

import pytest

from tests.support.servers.processes import ROOT

T = TypeVar("T")

NETWORK = "198.18.0"
"""Reserved for tests of networks (RFC 2544). Each run has it to itself: there are no collisions."""

CLONE_NEWNET = 0x40000000  # sched.h
TUNSETIFF = 0x400454CA  # linux/if_tun.h
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C  # linux/sockios.h
IFF_UP, IFF_RUNNING = 0x1, 0x40


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Host:
    """A machine: its name, its address, and the descriptor that keeps its namespace."""

    name: str
    address: str
    namespace: int

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs this one on the machine, until it ends or this process does."""
        entered = f"--net=/proc/{os.getpid()}/fd/{self.namespace}"
        # It dies with the thread that starts it: start it from the main one.
        return ["nsenter", entered, "--", "setpriv", "--pdeathsig", "KILL", "--", *command]

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the machine: its sockets and threads belong to the machine."""
        return _in_thread(lambda: (_enter(self.namespace), function())[1])


@dataclass(frozen=True)
class Fault:
    """A fault of packets from one address to another; "" means any.

    `loss`: probability of a loss, 0 to 1. `delay`: seconds of delay.
    """

    source: str = ""
    target: str = ""
    loss: float = 0.0
    delay: float = 0.0


def one_way(source: Host, target: Host) -> list[Fault]:
    """All packets from one machine to another are lost; the other direction works."""
    return [Fault(source.address, target.address, loss=1)]


def partition(one: Host, other: Host) -> list[Fault]:
    """All packets between two machines are silently lost."""
    return [*one_way(one, other), *one_way(other, one)]


@dataclass
class Harm:
    """The packets that a fault has lost or delayed, set when it is over."""

    packets: int = 0


class Network:
    """Hosts, and the switch between them. Add all hosts, then `start`; the `with` block removes them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._interfaces: dict[str, int] = {}
        self._hosts: list[Host] = []
        self._switch: subprocess.Popen[str] | None = None
        self._faults: dict[int, Fault] = {}
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._switch:
            assert self._switch.stdin
            self._switch.stdin.close()
            self._switch.wait(timeout=20)
            assert self._switch.stdout
            self._switch.stdout.close()
        for descriptor in (*self._interfaces.values(), *(host.namespace for host in self._hosts)):
            os.close(descriptor)

    def add_host(self, name: str) -> Host:
        """Make a machine that is up, with an address of its own."""
        address = f"{NETWORK}.{len(self._hosts) + 1}"
        namespace, interface = _in_thread(lambda: _make_namespace(address))
        host = Host(name, address, namespace)
        self._hosts.append(host)
        self._interfaces[address] = interface
        return host

    def start(self) -> None:
        """Join the hosts."""
        ports = json.dumps(self._interfaces)
        self._switch = subprocess.Popen(
            [sys.executable, "-m", "tests.machines.switch", str(self._seed), ports],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=list(self._interfaces.values()),
        )
        for interface in self._interfaces.values():
            os.close(interface)
        self._interfaces.clear()
        self._tell()

    @contextmanager
    def suffers(self, faults: Sequence[Fault]) -> Generator[Harm]:
        """Apply these faults while the block runs."""
        numbers = {next(self._numbers): fault for fault in faults}
        harm = Harm()
        self._faults |= numbers
        self._tell()
        try:
            yield harm
        finally:
            for number in numbers:
                del self._faults[number]
            counts = self._tell()
            harm.packets = sum(counts.get(str(number), 0) for number in numbers)

    def _tell(self) -> dict[str, int]:
        """Send all faults to the switch.

        Return the packets that each earlier fault has harmed, once it has answered.
        """
        assert self._switch
        assert self._switch.stdin
        assert self._switch.stdout
        faults = {number: asdict(fault) for number, fault in self._faults.items()}
        self._switch.stdin.write(f"{json.dumps(faults)}\n")
        self._switch.stdin.flush()
        return json.loads(self._switch.stdout.readline())


def require_namespaces() -> None:
    """Skip the test if machines cannot be made."""
    if sys.platform != "linux":
        pytest.skip("network namespaces are Linux's")
    for tool in ("nsenter", "setpriv"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed (util-linux)")
    try:
        for descriptor in _in_thread(lambda: _make_namespace(f"{NETWORK}.1")):
            os.close(descriptor)
    except OSError as error:
        pytest.skip(f"network namespaces cannot be made here ({error}); run as root, with /dev/net/tun")


def _in_thread(function: Callable[[], T]) -> T:
    """Call in a thread of its own: a thread that has entered a namespace cannot be used for anything else."""
    values: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            values.append(function())
        except BaseException as error:  # noqa: BLE001 -- it is raised again in the thread that asked
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return values[0]


def _enter(namespace: int) -> None:
    _check(_libc().setns(namespace, CLONE_NEWNET), "setns")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _make_namespace(address: str) -> tuple[int, int]:
    """Move this thread to a new namespace with one interface; return the descriptors of both."""
    _check(_libc().unshare(CLONE_NEWNET), "unshare")
    interface = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        name = b"machine0"
        fcntl.ioctl(interface, TUNSETIFF, struct.pack("16sH14x", name, IFF_TUN | IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0")):
                packed = struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(value))
                fcntl.ioctl(control, request, packed)
            for each in (name, b"lo"):
                fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", each, IFF_UP | IFF_RUNNING))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY), interface
    except OSError:
        os.close(interface)
        raise
