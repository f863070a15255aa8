"""A gateway with artifacts that a test writes and makes fail."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import httpx

from everloop.gateway.context import ANONYMOUS
from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.names import context_key
from tests.gateway.harness import RunningGateway
from tests.support.stores import redis_of

MIB = 1024 * 1024
CONTENT = bytes(range(256)) * 8
ROWS = b'{"id": 1, "name": "a,b"}\n{"id": 2, "tags": ["x"]}\n'
LINK_SECONDS = 900


class FailingArtifacts(Artifacts):
    """Yields some pieces and then fails, if a failure is set, or just ends; tells whether it is being read.

    `replaced` are contents that take the place of an artifact when it is about to be read, the last first.
    """

    def __init__(self, views: TaskViews) -> None:
        redis = redis_of(views)
        super().__init__(redis, RedisBlobs(redis), segment=MIB)
        self.failure: Exception | None = None
        self.ends_early = False
        self.pieces = 1
        self.reading = 0
        self.url: str | None = None
        self.terms: LinkTerms | None = None
        self.replaced: list[bytes] = []

    async def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        if self.replaced:
            change = Create(task_id="t", parts=(file(self.replaced.pop()),), complete=True, override=True)
            await self.apply(context_id, artifact_id, change)
        self.reading += 1
        left = self.pieces
        try:
            async for piece in super().read_part(context_id, artifact_id, index, start=start, end=end):
                if self.failure and not left:
                    raise self.failure
                if self.ends_early and not left:
                    break
                left -= 1
                yield piece
        finally:
            self.reading -= 1

    async def link(self, context_id: str, artifact_id: str, index: int, terms: LinkTerms) -> str | None:
        self.terms = terms
        return self.url


@dataclass(frozen=True)
class Site:
    """A gateway, its artifacts, and a context of this test's own, whose name has to be quoted."""

    gateway: RunningGateway
    artifacts: FailingArtifacts
    context: str

    @property
    def key(self) -> str:
        """The key of the context, for the owner of the gateway's clients."""
        return context_key(ANONYMOUS, self.context)

    async def put(
        self, *parts: NewPart, artifact_id: str = "out", complete: bool = True, owner: str = ANONYMOUS
    ) -> None:
        """Create or replace an artifact."""
        change = Create(task_id="task", parts=parts, complete=complete, override=True)
        await self.artifacts.apply(context_key(owner, self.context), artifact_id, change)

    def address(self, artifact_id: str = "out", index: int = 0) -> str:
        return f"{self.path}/{quote(artifact_id, safe='')}/parts/{index}"

    @property
    def path(self) -> str:
        """The address of the context."""
        return f"artifacts/{quote(self.context, safe='')}"

    async def get(self, path: str = "", **headers: str) -> httpx.Response:
        """Get an address, by default that of the first part; `If_Match` stands for If-Match."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.gateway.http.get(path or self.address(), headers=named)

    async def head(self, path: str = "", **headers: str) -> httpx.Response:
        return await self.gateway.http.head(path or self.address(), headers=headers)


def file(content: bytes = CONTENT, media_type: str = "image/png", filename: str = "") -> NewPart:
    return NewPart(kind="file", content=content, media_type=media_type, filename=filename)


def check_error(answer: httpx.Response, status: int, words: str) -> None:
    """Assert the status, and a JSON error without internals that no cache stores."""
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["code"] == status
    assert words in error["message"]
    assert error["details"][0]["reason"]  # as all errors over HTTP
    assert answer.headers["Cache-Control"] == "no-store"
    for secret in ("Traceback", ".py", "secret-key"):
        assert secret not in answer.text
