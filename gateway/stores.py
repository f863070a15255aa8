"""What a gateway keeps outside of Temporal."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stores.artifacts import Artifacts
from stores.secrets import Secrets
from stores.task_views import TaskViews


@dataclass(frozen=True)
class Stores:
    """Where tasks are shown from, where clients' secrets for their tools go, and what tasks put out.

    `link_seconds` is how long a link lasts at which clients fetch a part from the blob store itself; 0: they
    fetch all from us. `clean_up` removes, in one round, what the stores keep for nobody any more.
    """

    views: TaskViews
    secrets: Secrets
    artifacts: Artifacts
    link_seconds: int = 0
    clean_up: Callable[[], Awaitable[object]] | None = None
