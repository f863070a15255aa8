"""Progress of MCP tools, as subscribers hear of it."""

import asyncio

from everloop.agents.mcp.results import LatestProgress


async def test_what_comes_while_one_is_told_is_left_out_but_for_the_newest() -> None:
    """A server that reports faster than anybody can be told holds nothing up."""
    told: list[str] = []
    may_go_on = asyncio.Event()

    async def tell(text: str) -> None:
        told.append(text)
        await may_go_on.wait()

    progress = LatestProgress(tell)
    async with asyncio.TaskGroup() as hearing:
        for step in range(5):
            hearing.create_task(progress.update(step, 5, None))
        await asyncio.sleep(0)
        may_go_on.set()

    assert told == ["0 of 5", "4 of 5"]


async def test_what_was_heard_before_the_result_is_told_before_it() -> None:
    """The last progress does not come behind the end of its call."""
    told: list[str] = []
    may_go_on = asyncio.Event()

    async def tell(text: str) -> None:
        await may_go_on.wait()
        told.append(text)

    progress = LatestProgress(tell)
    async with asyncio.TaskGroup() as hearing:
        for step in (1, 2):
            hearing.create_task(progress.update(step, 2, None))
        ended = hearing.create_task(progress.flush())
        ended.add_done_callback(lambda _: told.append("result"))
        await asyncio.sleep(0)
        may_go_on.set()

    assert told == ["1 of 2", "2 of 2", "result"]
