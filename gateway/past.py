"""What is known of the tasks there are."""

from dataclasses import dataclass

from everloop.gateway.endings import Endings
from everloop.gateway.large_tasks import LargeTasks
from everloop.gateway.routes import Routes
from everloop.gateway.snapshots import Snapshots


@dataclass(frozen=True)
class Past:
    """How tasks stand, how they ended, and what became of messages that may have been answered at once."""

    snapshots: Snapshots
    large: LargeTasks
    endings: Endings
    routes: Routes
