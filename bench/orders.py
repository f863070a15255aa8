"""What the message of a task orders, of the model of the benchmark and so of whoever runs the task."""

from typing import TypedDict

RESULT_BYTES = 2000
"""Size of a tool's result."""


class Order(TypedDict, total=False):
    """What is to happen. `bench.servers.model` says how."""

    iterations: int
    size: int
    tool: str
    asks: bool
    megabytes: int
    tokens: int
    rate: float


def iterations_order(iterations: int, size: int = RESULT_BYTES) -> Order:
    """Return the order for so many iterations, each with a tool result of `size` bytes, and an answer."""
    return {"iterations": iterations, "size": size}
