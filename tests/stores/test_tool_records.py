"""Tool records: a call that is claimed twice, an outcome that is recorded twice."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from stores.redis_tool_records import RedisToolRecords
from stores.tool_records import Claim, ToolRecords
from tests.stores.examples import new_id
from workflows.contract.messages import ToolCall, ToolMessage
from workflows.contract.names import tool_record_key
from workflows.contract.questions import Question, QuestionKind

OUTCOME = ToolMessage(call_id="c1", name="search", content="found é \x00", outcome="error")
QUESTION = Question(
    id="c1", kind=QuestionKind.CONFIRMATION, text="Sure?", call=ToolCall(id="c1", name="x", arguments="{}")
)
OTHER = ToolMessage(call_id="c1", name="search", content="other")


async def test_only_the_first_claim_is_the_first(tool_records: ToolRecords) -> None:
    """A call that was started and has no outcome answers so to every later claim."""
    task_id = new_id()

    claims = [await tool_records.claim(task_id, "c1") for _ in range(3)]

    assert claims == [Claim.FIRST, Claim.STARTED_BEFORE, Claim.STARTED_BEFORE]


async def test_one_of_many_claims_at_once_is_the_first(tool_records: ToolRecords) -> None:
    """Attempts that race for a call never both run it."""
    task_id = new_id()

    claims = await asyncio.gather(*(tool_records.claim(task_id, "c1") for _ in range(40)))

    assert claims.count(Claim.FIRST) == 1


async def test_a_finished_call_answers_with_its_outcome(tool_records: ToolRecords) -> None:
    """After `finish` every claim returns the outcome."""
    task_id = new_id()
    await tool_records.claim(task_id, "c1")

    assert await tool_records.finish(task_id, "c1", OUTCOME) == OUTCOME
    assert await tool_records.claim(task_id, "c1") == OUTCOME


async def test_the_first_outcome_stands(tool_records: ToolRecords) -> None:
    """A second outcome of a call is not recorded; the first is returned."""
    task_id = new_id()
    await tool_records.finish(task_id, "c1", OUTCOME)

    assert await tool_records.finish(task_id, "c1", OTHER) == OUTCOME
    assert await tool_records.claim(task_id, "c1") == OUTCOME


async def test_an_outcome_may_be_a_question(tool_records: ToolRecords) -> None:
    """It comes back as one."""
    task_id = new_id()

    assert await tool_records.finish(task_id, "c1", QUESTION) == QUESTION
    assert await tool_records.claim(task_id, "c1") == QUESTION


async def test_a_released_call_is_claimed_anew(tool_records: ToolRecords) -> None:
    """By one claim; releasing what was never claimed changes nothing."""
    task_id = new_id()
    await tool_records.release(task_id, "c1")
    await tool_records.claim(task_id, "c1")

    await tool_records.release(task_id, "c1")

    assert [await tool_records.claim(task_id, "c1") for _ in range(2)] == [Claim.FIRST, Claim.STARTED_BEFORE]


async def test_a_release_takes_no_outcome_away(tool_records: ToolRecords) -> None:
    """An attempt that was given up may release late."""
    task_id = new_id()
    await tool_records.finish(task_id, "c1", OUTCOME)

    await tool_records.release(task_id, "c1")

    assert await tool_records.claim(task_id, "c1") == OUTCOME


async def test_a_record_of_an_older_version_is_read(redis: Redis) -> None:
    """Outcomes that were recorded before there were questions."""
    task_id = new_id()
    older = '{"role":"tool","call_id":"c1","name":"search","content":"found","outcome":"ok"}'
    await redis.hset(tool_record_key(task_id, "c1"), mapping={"started": "1", "outcome": older})

    found = await RedisToolRecords(redis).claim(task_id, "c1")

    assert found == ToolMessage(call_id="c1", name="search", content="found")


@pytest.mark.parametrize("started", [{}, {"started": "1"}], ids=["unclaimed", "claimed"])
async def test_an_outcome_that_cannot_be_read_is_unknown(redis: Redis, started: dict[str, str]) -> None:
    """A newer version wrote it: the call is never the first, and what it comes to now is returned."""
    task_id, records = new_id(), RedisToolRecords(redis)
    newer = '{"role":"tool","call_id":"c1","name":"search","content":"found","outcome":"postponed"}'
    key = tool_record_key(task_id, "c1")
    await redis.hset(key, mapping={**started, "outcome": newer})

    assert [await records.claim(task_id, "c1") for _ in range(2)] == [Claim.STARTED_BEFORE] * 2
    assert await records.finish(task_id, "c1", OUTCOME) == OUTCOME
    assert await redis.hget(key, "outcome") == newer


async def test_calls_and_tasks_have_records_of_their_own(tool_records: ToolRecords) -> None:
    """The same call id in another task, or another call of the task, is another call."""
    first, second = new_id(), new_id()
    await tool_records.finish(first, "c1", OUTCOME)

    assert await tool_records.claim(first, "c2") is Claim.FIRST
    assert await tool_records.claim(second, "c1") is Claim.FIRST


async def test_records_expire(redis: Redis) -> None:
    """Each call puts the end of a record off to its time to live."""
    records = RedisToolRecords(redis, ttl=timedelta(hours=1))
    task_id = new_id()
    key = tool_record_key(task_id, "c1")

    await records.claim(task_id, "c1")
    lives = [await redis.ttl(key)]
    await redis.expire(key, 5)
    await records.finish(task_id, "c1", OUTCOME)
    lives.append(await redis.ttl(key))

    assert all(3_500 < life <= 3_600 for life in lives)


@pytest.mark.parametrize("value", [{"job": "é\x00", "at": [1, 2.5, None]}, "text", 0, False, []], ids=repr)
async def test_a_call_keeps_the_last_value(tool_records: ToolRecords, value: JsonValue) -> None:
    """Any JSON, in place of what was kept before; at first there is nothing."""
    task_id = new_id()
    before = await tool_records.kept(task_id, "c1")

    await tool_records.keep(task_id, "c1", "earlier")
    await tool_records.keep(task_id, "c1", value)

    assert before is None
    assert await tool_records.kept(task_id, "c1") == value
    assert await tool_records.kept(task_id, "c2") is None
    assert await tool_records.kept(new_id(), "c1") is None


async def test_what_is_kept_is_no_claim_and_no_outcome(tool_records: ToolRecords) -> None:
    """Keeping starts nothing; a release and an outcome leave the value there."""
    task_id = new_id()
    await tool_records.keep(task_id, "c1", 7)
    claims = [await tool_records.claim(task_id, "c1")]
    await tool_records.release(task_id, "c1")
    claims.append(await tool_records.claim(task_id, "c1"))
    await tool_records.finish(task_id, "c1", OUTCOME)

    assert claims == [Claim.FIRST, Claim.FIRST]
    assert await tool_records.kept(task_id, "c1") == 7


async def test_what_is_kept_expires_with_the_record(redis: Redis) -> None:
    """A value that was kept alone expires, too."""
    records, task_id = RedisToolRecords(redis, ttl=timedelta(hours=1)), new_id()

    await records.keep(task_id, "c1", 7)

    assert 3_500 < await redis.ttl(tool_record_key(task_id, "c1")) <= 3_600
