"""One target for all fuzzers, and its log while it is fuzzed.

The gate sends the examples alone; `make test-all` fuzzes.
"""

import logging
from collections.abc import AsyncGenerator, Generator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from temporalio.client import Client

from everloop.runtime.redis import connect_redis
from everloop.runtime.temporal.blob_payloads import data_converter
from everloop.stores.blobs.local_blobs import LocalBlobs
from tests.fuzz.target import Target, running_target


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def target(
    temporal_address: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Target]:
    blobs = LocalBlobs(tmp_path_factory.mktemp("blobs"))
    client = await Client.connect(temporal_address, data_converter=data_converter(blobs))
    async with connect_redis(redis_url) as redis, running_target(client, redis) as target:
        yield target


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture(autouse=True)
def no_unforeseen_failure() -> Generator[None]:
    """Nothing that a client sends makes the gateway log an error."""
    handler = _Errors()
    logging.getLogger().addHandler(handler)
    try:
        with capture_logs() as lines:
            yield
    finally:
        logging.getLogger().removeHandler(handler)
    assert not [line for line in lines if line["log_level"] in {"error", "critical"}]
    assert not handler.texts
