"""One Temporal dev server and one Valkey for a whole test run; tests share them by unique ids."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis

# gRPC's fork handlers would run in the children that tests start, and abort some of them (SIGABRT).
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

from everloop.runtime.redis import connect_redis
from tests.support.fakes.failing import UNREACHED
from tests.support.servers.processes import (
    INHERITED,
    RUNNING_CLUSTERS,
    TEMPORAL_OPTIONS,
    running_temporal,
    running_valkey,
)
from tests.support.servers.redis_cluster import running_cluster_as_server
from tests.support.servers.tls import certificate_files
from tests.support.stores import DATABASES

# A killed server loses nothing in the kernel's buffers; waiting for the disk made tests three times as long.
TEMPORAL_OPTIONS.extend(["--sqlite-pragma", "synchronous=0"])

# A busy machine may delay any example for longer than Hypothesis's 200 ms.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option to run on a Redis cluster, except tests that request a server of a certain kind."""
    parser.addoption("--redis-cluster", action="store_true", help="run Redis as a cluster of six servers")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the collector out of the threads of workflows; `garbage` collects between tests instead.

    There it ends forgotten coroutines while their own event loop may resume them, which crashed CPython 3.11,
    and its finalizers break the import it interrupts (KeyError in importlib, python/cpython#91351).
    """
    gc.disable()
    if config.getoption("--redis-cluster"):
        RUNNING_CLUSTERS.append(running_cluster_as_server)
    if config.getoption("markexpr") == "not slow":  # these fetch nothing from other hosts
        _trust_nobody(config)
    # A script that starts us in the background ignores SIGINT, and so would all commands under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _trust_nobody(config: pytest.Config) -> None:
    """Save each client of HTTP the 25 ms for reading this machine's certificates."""
    folder = TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    os.environ["SSL_CERT_FILE"] = str(certificate_files("nobody", Path(folder.name)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect on a cluster the tests of a single Redis server."""
    if config.getoption("--redis-cluster"):
        of_one = [item for item in items if item.get_closest_marker("one_server")]
        config.hook.pytest_deselected(items=of_one)
        items[:] = [item for item in items if item not in of_one]


def pytest_collection_finish() -> None:
    """Freeze the modules and the tests, so that collections between tests skip them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report the awaited lines of a test that its timeout ended.

    Then end it: its timeout stops the event loop and not the test, whose workers would wait at the end of the
    run for a Temporal that is gone.
    """
    report = yield
    if call.excinfo and str(call.excinfo.value).startswith("Timeout"):
        # From the collector: the interrupted code has no running loop.
        objects: list[object] = gc.get_objects()
        tasks = [cast("asyncio.Task[object]", found) for found in objects if isinstance(found, asyncio.Task)]
        tasks = [task for task in tasks if not task.done()]
        lines = ["\n  ".join((task.get_name(), *_awaited(task.get_coro()))) for task in tasks]
        report.sections.append(("Pending asyncio tasks", "\n".join(lines)))
        for task in tasks:
            if getattr(task.get_coro(), "__name__", "") == getattr(item, "originalname", None):
                task.cancel()
                task.get_loop().run_until_complete(asyncio.wait([task], timeout=60))
    return report


def _awaited(awaited: object) -> Iterator[str]:
    """Yield the position of a coroutine, of the one that it awaits, and so on."""
    while awaited is not None:
        kind = "ag" if hasattr(awaited, "ag_frame") else "cr"
        if frame := getattr(awaited, f"{kind}_frame", None):
            yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        awaited = getattr(awaited, f"{kind}_await", None)


@pytest.fixture(autouse=True, scope="module")
def old_garbage() -> Iterator[None]:
    """Collect objects that outlived their test; a full collection takes too long after each test."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def garbage() -> Iterator[None]:
    """Collect the garbage of a test while its event loop rests."""
    yield
    gc.collect(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    INHERITED["EVERLOOP_BLOB_DIRECTORY"] = str(tmp_path_factory.mktemp("blobs"))
    async with running_valkey(tmp_path_factory.mktemp("valkey")) as (_, url):
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def redis(redis_url: str) -> AsyncGenerator[Redis]:
    """An empty database: in that of `redis_url` gateways fail tasks that are not in Temporal."""
    async with connect_redis(redis_url.replace("/0", "/1")) as client:
        await client.flushdb()
        DATABASES.append(client)
        UNREACHED.clear()
        yield client
        DATABASES.pop()
        assert not UNREACHED, f"the test lets methods fail that nobody has called: {UNREACHED}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with running_temporal(tmp_path_factory.mktemp("temporal")) as (_, address):
        yield address
