"""Fixtures of tests of activities: the spans of this process, and views of tasks in each store."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis


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


@pytest.fixture(autouse=True)
def stores(redis: Redis) -> None:
    """Return the stores of one test, on an empty database."""
