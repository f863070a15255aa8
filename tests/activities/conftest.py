"""What tests of activities share: the spans of this process, and views of tasks in each store."""

from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis

from everloop.runtime.redis import connect_redis
from everloop.stores.views.store import TaskViews
from tests.support.memory.task_views import MemoryTaskViews


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Collect the spans of this process; the provider is global and can be set once only."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    provider.add_span_processor(processor)
    yield exporter
    processor.shutdown()


@pytest_asyncio.fixture(loop_scope="session")
async def redis(redis_url: str) -> AsyncGenerator[Redis]:
    async with connect_redis(redis_url) as client:
        yield client


@pytest.fixture(params=["memory", "redis"])
def views(request: pytest.FixtureRequest) -> TaskViews:
    return MemoryTaskViews() if request.param == "memory" else TaskViews(request.getfixturevalue("redis"))
