"""The ports of a local stack: requested, stored by an earlier run, or chosen."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from everloop.local.servers import free_port, is_free
from everloop.local.stack_errors import LocalStackError

USUAL_PORTS = {"gateway": 8080}
"""Ports that documents and clients expect."""


class StackPorts(BaseModel):
    """One TCP port of the loopback interface for each listener; for gRPC only if requested."""

    gateway: int
    gateway_grpc: int | None = None
    temporal: int
    temporal_ui: int
    temporal_http: int
    temporal_metrics: int
    redis: int
    demo_model: int


_REMEMBERED = TypeAdapter(dict[str, int])


def choose_ports(
    file: Path,
    requested: Mapping[str, tuple[str, int]],
    say: Callable[[str], None],
    usual: Mapping[str, int] | None = None,
) -> StackPorts:
    """Choose a port for each listener and store them in `file`, so that links stay valid after a restart.

    `requested` maps a name in `StackPorts` to (environment variable, port), `usual` to a port that is used if
    it is free. Both take precedence over stored ports.

    Raises:
        LocalStackError: a requested port is in use. A stored port in use is replaced, with a message.
    """
    remembered = _read(file)
    chosen = {
        name: _check_requested(*requested[name]) for name in StackPorts.model_fields if name in requested
    }
    for name, field in StackPorts.model_fields.items():
        if name in requested or not field.is_required():
            continue
        preferred = [ports[name] for ports in (usual or {}, remembered) if name in ports]
        free = (port for port in preferred if port not in chosen.values() and is_free(port))
        chosen[name] = next(free, 0) or _other_than(set(chosen.values()))
        if preferred and preferred[0] != chosen[name]:
            say(f"port {preferred[0]} is in use now; {name.replace('_', ' ')} takes {chosen[name]}")
    ports = StackPorts.model_validate(chosen)
    _write(file, ports)
    return ports


def _check_requested(variable: str, port: int) -> int:
    if not is_free(port):
        raise LocalStackError(
            f"port {port} ({variable}) is in use; free it, or set {variable} to another one"
        )
    return port


def _other_than(taken: set[int]) -> int:
    while (port := free_port()) in taken:
        pass
    return port


def _read(file: Path) -> dict[str, int]:
    """Return the stored ports; empty if the file is missing or damaged."""
    try:
        return _REMEMBERED.validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}


def _write(file: Path, ports: StackPorts) -> None:
    """Replace the file atomically: a truncated file would break every link."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(ports.model_dump_json(indent=2, exclude_none=True))
    draft.replace(file)
