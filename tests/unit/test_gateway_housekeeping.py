"""The gateway's rounds of cleaning up."""

import asyncio

import pytest

from gateway.cancellation import cancel
from gateway.housekeeping import Housekeeping
from stores.blobs import BlobsUnavailableError


class Store:
    """Fails as it is told, once each."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)
        self.done = asyncio.Event()

    async def run_once(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure:
            raise failure
        if not self.failures:
            self.done.set()


async def test_rounds_go_on_after_failures() -> None:
    """Whatever a round fails with, the next one is tried."""
    store = Store(BlobsUnavailableError("s3", "away"), ValueError("a defect"), None, ConnectionRefusedError())

    rounds = asyncio.create_task(Housekeeping(store.run_once, pause=0).run())
    await asyncio.wait_for(store.done.wait(), 10)

    assert not rounds.done()
    await cancel(rounds)


async def test_a_failure_is_logged_once_until_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """An outage is one line, not one in each round; a defect comes with its traceback."""
    away = BlobsUnavailableError("s3", "away")
    store = Store(away, away, None, away, ValueError("a defect"))
    housekeeping = Housekeeping(store.run_once)

    for _ in range(6):
        await housekeeping.round()

    logged = capsys.readouterr().out
    assert logged.count("cannot clean up artifacts now") == 3
    assert "Traceback" in logged
