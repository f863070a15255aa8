"""What a gateway keeps outside of Temporal."""

from dataclasses import dataclass

from everloop.stores.artifacts.interface import Artifacts
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.interface import TaskViews


@dataclass(frozen=True)
class Stores:
    """Where tasks are shown from, where clients' secrets for their tools go, what tasks put out and said.

    `link_seconds` is how long a link lasts at which clients fetch a part from the blob store itself; 0: they
    fetch all from us.
    """

    views: TaskViews
    secrets: Secrets
    artifacts: Artifacts
    transcripts: Transcripts
    link_seconds: int = 0
