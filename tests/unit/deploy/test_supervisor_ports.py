"""Ports and directory of a local stack: requested, remembered, chosen; one stack for each directory."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from everloop.local.port_numbers import StackPorts, choose_ports
from everloop.local.servers import LOOPBACK, free_port
from everloop.local.stack_errors import LocalStackError


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        server.listen()
        yield server.getsockname()[1]


def ignore(_line: str) -> None:
    pass


def test_ports_are_remembered(tmp_path: Path) -> None:
    """Links to the gateway and to Temporal's UI stay valid after a restart, and no port is given twice."""
    file = tmp_path / "ports.json"

    first = choose_ports(file, {}, ignore)

    assert choose_ports(file, {}, ignore) == first
    assert len(set(first.model_dump().values())) == len(StackPorts.model_fields)
    assert first.gateway_grpc is None  # some clients refuse agent cards with gRPC, so its port is requested


def test_a_remembered_port_that_is_in_use_is_replaced_and_that_is_said(
    tmp_path: Path, taken_port: int
) -> None:
    """The others are unchanged, and the new one is remembered and reported."""
    file, said = tmp_path / "ports.json", list[str]()
    first = choose_ports(file, {}, ignore)
    file.write_text(first.model_copy(update={"temporal_ui": taken_port}).model_dump_json(exclude_none=True))

    second = choose_ports(file, {}, said.append)

    assert second.temporal_ui != taken_port
    assert second == first.model_copy(update={"temporal_ui": second.temporal_ui})
    assert said == [f"port {taken_port} is in use now; temporal ui takes {second.temporal_ui}"]
    assert choose_ports(file, {}, ignore) == second


def test_the_usual_port_is_taken_whenever_it_is_free(tmp_path: Path, taken_port: int) -> None:
    """It wins over the remembered one, which is used while the usual one is busy, with a note."""
    file, said, free = tmp_path / "ports.json", list[str](), free_port()
    first = choose_ports(file, {}, ignore)

    second = choose_ports(file, {}, said.append, {"gateway": taken_port})
    assert second == first
    assert said == [f"port {taken_port} is in use now; gateway takes {first.gateway}"]

    third = choose_ports(file, {}, said.append, {"gateway": free})
    assert third == first.model_copy(update={"gateway": free})
    assert len(said) == 1


def test_a_port_that_was_asked_for_goes_to_nobody_else(tmp_path: Path) -> None:
    """Also if it is the usual one of another service."""
    wanted, said = free_port(), list[str]()

    ports = choose_ports(
        tmp_path / "ports.json", {"redis": ("EVERLOOP_REDIS_PORT", wanted)}, said.append, {"gateway": wanted}
    )

    assert (ports.redis, ports.gateway == wanted) == (wanted, False)
    assert said == [f"port {wanted} is in use now; gateway takes {ports.gateway}"]


def test_a_port_that_was_asked_for_and_is_in_use_is_an_error(tmp_path: Path, taken_port: int) -> None:
    """The message names port and variable."""
    with pytest.raises(LocalStackError, match=rf"port {taken_port} \(EVERLOOP_PORT\) is in use"):
        choose_ports(tmp_path / "ports.json", {"gateway": ("EVERLOOP_PORT", taken_port)}, ignore)


@pytest.mark.parametrize("content", ["{", '{"gateway": 0}'])
def test_a_damaged_memory_of_ports_is_replaced(tmp_path: Path, content: str) -> None:
    """No content of the file keeps the stack from starting."""
    file = tmp_path / "ports.json"
    file.write_text(content)

    assert choose_ports(file, {}, ignore) == choose_ports(file, {}, ignore)
