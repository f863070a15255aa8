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
            hearing.create_task(progress.hear(step, 5, None))
        await asyncio.sleep(0)
        may_go_on.set()

    assert told == ["0 of 5", "4 of 5"]


async def test_a_message_stands_for_the_numbers() -> None:
    """Without one, and without a total, there is just the number."""
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    progress = LatestProgress(tell)
    await progress.hear(1, 2, "halfway")
    await progress.hear(3, None, None)

    assert told == ["halfway", "3"]


async def test_of_a_call_that_has_ended_nothing_is_told() -> None:
    """Nobody hears of the progress of a call whose result they have."""
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    progress = LatestProgress(tell)
    progress.stop()
    await progress.hear(1, 2, None)

    assert told == []


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
            hearing.create_task(progress.hear(step, 2, None))
        ended = hearing.create_task(progress.told())
        ended.add_done_callback(lambda _: told.append("result"))
        await asyncio.sleep(0)
        may_go_on.set()

    assert told == ["1 of 2", "2 of 2", "result"]
