"""The pytest plugin: the fixture `everloop_app`.

Every pytest run of a project with Everloop loads it: it imports nothing of Everloop before a test uses
it.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

try:
    from pytest_asyncio import fixture
except ImportError:
    from pytest import fixture  # noqa: PT013 -- anyio's plugin takes it

if TYPE_CHECKING:
    from everloop.testing.running_app import App, StartApp


@fixture
async def everloop_app() -> AsyncGenerator["StartApp"]:
    """A function that starts agents for a test, as `running` does, and stops them after it."""
    async with AsyncExitStack() as opened:

        async def start(*agents: Any, **options: Any) -> "App[Any]":  # noqa: ANN401 -- those of running
            from everloop.testing.running_app import running  # noqa: PLC0415 -- see the head of this module

            return await opened.enter_async_context(running(*agents, **options))

        yield start
