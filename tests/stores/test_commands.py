"""What a plain answer takes of Redis, trip by trip: commands, those of scripts too."""

from collections.abc import Awaitable
from typing import cast

import pytest
from redis.asyncio import Redis

from everloop.stores.conversations.store import Conversations
from everloop.stores.log.store import TaskViews
from everloop.stores.scripts import Lease
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import chunk, said, status, submitted

SMALL = 1_000_000


async def commands(redis: Redis) -> int:
    """Return how many commands Redis has carried out, but those that ask for this."""
    stats = cast("dict[str, dict[str, int]]", await redis.info("commandstats"))
    ours = ("cmdstat_info", "cmdstat_script|load", "cmdstat_hello", "cmdstat_client", "cmdstat_ping")
    return sum(of["calls"] for name, of in stats.items() if not name.startswith(ours))


@pytest.mark.one_server  # it counts the commands of one
async def test_a_plain_answer_takes_so_many_commands(own_redis: Redis) -> None:
    """A key is read once in a trip, written once, and told once when it expires."""
    views, records, transcripts = TaskViews(own_redis), ToolRecords(own_redis), Transcripts(own_redis)
    conversations, counted = Conversations(own_redis), dict[str, int]()

    async def count(name: str, trip: Awaitable[object]) -> None:
        before = await commands(own_redis)
        await trip
        counted[name] = await commands(own_redis) - before

    for _ in range(2):  # the first one loads the scripts
        view, reply = submitted(), AssistantMessage(text="Hello")
        id_, lease = view.task_id, Lease(view.task_id, "reply", "attempt", "1")
        claim, opening = records.claiming(lease, 10), transcripts.opening(id_, "run", 1, [said("m")])
        begun = views.publishing(id_, "run", [status(1)], lease)
        adding = transcripts.adding(id_, "run", 1, reply, lease)
        answer = views.publishing(id_, "run", [chunk("Hello", last=True)], lease)
        await count("look for the message", views.find(id_, most=SMALL))
        await count("begin, and list", views.begin(view, most=SMALL))
        await count("open the call", views.run(claim, opening, begun))
        await count("close the call", views.run(adding, answer, records.releasing(lease)))
        await count("read the transcript", transcripts.open(id_, "run", 2))
        await count("remember", conversations.append(id_, id_, [said("m"), reply]))
        await count("end, and list", views.publish(id_, "run", [status(2, TaskState.COMPLETED)]))
        await count("load", views.load(id_, most=SMALL))

    assert counted == {
        "look for the message": 1,
        "begin, and list": 11,
        "open the call": 7,
        "close the call": 8,
        "read the transcript": 1,
        "remember": 7,
        "end, and list": 18,
        "load": 2,
    }
