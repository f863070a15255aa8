"""Queues of their own, for agents and tools whose calls need other workers, or not too many at once."""

from everloop.workflows.contract.names import WORKER_QUEUES

PRIORITIES = range(1, 6)
"""Temporal's: the first goes first."""

_MOST_BYTES = 200  # Temporal has 255 for the name, and puts its own marks around it


def problem_of_queue(name: str) -> str:
    """Return what is wrong with the name of a task queue; empty if nothing is."""
    if not name.strip() or "," in name or not name.isprintable() or len(name.encode()) > _MOST_BYTES:
        return f"task_queue is {name!r}; give up to {_MOST_BYTES} bytes without commas"
    if name in WORKER_QUEUES:
        return f"task_queue is {name!r}, which is what `everloop worker --queues` calls a queue of all agents"
    return ""
