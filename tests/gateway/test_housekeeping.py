"""A gateway cleans up while it serves."""

import asyncio

from temporalio.client import Client

from stores.task_views import TaskViews
from tests.gateway.stage import running_gateway


async def test_a_gateway_cleans_up(client: Client, views: TaskViews) -> None:
    """The first round begins when it starts."""
    cleaned = asyncio.Event()

    async def clean_up() -> None:
        cleaned.set()

    async with running_gateway(client, views, queue="none", clean_up=clean_up), asyncio.timeout(20):
        await cleaned.wait()
