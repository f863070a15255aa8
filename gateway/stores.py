"""What a gateway keeps outside of Temporal."""

from dataclasses import dataclass

from stores.secrets import Secrets
from stores.task_views import TaskViews


@dataclass(frozen=True)
class Stores:
    """Where tasks are shown from, and where the secrets go that clients supply for their tools."""

    views: TaskViews
    secrets: Secrets
