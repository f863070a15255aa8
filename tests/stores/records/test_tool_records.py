"""Tool records: repeated claims, overtaken attempts, and repeated outcomes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.stores.keys import outcomes_key, records_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.scripts import Lease, OvertakenError, Step, run_scripts
from everloop.stores.tool_records import Claim, ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.events import Warned
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage
from tests.stores.examples import new_id, said, status, stream_of, submitted
from tests.support.stores import SingleRecords

OUTCOME = ToolMessage(call_id="c1", name="search", content="found é \x00", outcome="error")
OTHER = ToolMessage(call_id="c1", name="search", content="other")


HELD = 60.0
"""Seconds: no lease ends by itself in a test."""


def lease(task_id: str, call_id: str = "c1") -> Lease:
    """Return another attempt's claim."""
    return Lease(task_id, call_id, uuid4().hex)


async def test_only_the_first_claim_is_the_first(tool_records: SingleRecords) -> None:
    """Only one claim is the first: others are held while its lease lives, and lost afterwards."""
    task_id, first = new_id(), lease(new_id())

    claims = [await tool_records.claim(first, HELD)]
    claims += [await tool_records.claim(lease(first.task_id), HELD) for _ in range(2)]
    assert await tool_records.renew(first, 0)
    claims += [await tool_records.claim(lease(first.task_id), HELD) for _ in range(2)]

    assert claims == [Claim.FIRST, Claim.HELD, Claim.HELD, Claim.LOST, Claim.HELD]
    assert await tool_records.claim(lease(task_id), HELD) is Claim.FIRST


async def test_a_claim_whose_answer_was_lost_is_answered_the_same(tool_records: SingleRecords) -> None:
    """A repeated claim gets the same answer, first or after a lost one."""
    first, second = lease(new_id()), lease("")
    second = replace(second, task_id=first.task_id)

    claims = [await tool_records.claim(first, 0) for _ in range(2)]
    claims += [await tool_records.claim(second, HELD) for _ in range(2)]

    assert claims == [Claim.FIRST, Claim.FIRST, Claim.LOST, Claim.LOST]


async def test_one_of_many_claims_at_once_is_the_first(tool_records: SingleRecords) -> None:
    """Of concurrent claims, one is the first."""
    task_id = new_id()

    claims = await asyncio.gather(*(tool_records.claim(lease(task_id), HELD) for _ in range(40)))

    assert (claims.count(Claim.FIRST), claims.count(Claim.HELD)) == (1, 39)


async def test_a_lease_that_has_ended_is_renewed_until_another_attempt_comes(
    tool_records: SingleRecords,
) -> None:
    """An expired lease is renewed unless another attempt took it; an overtaken one writes nothing."""
    slow = lease(new_id())
    await tool_records.claim(slow, 0)
    was_ours = await tool_records.renew(slow, 0)

    await tool_records.claim(lease(slow.task_id), HELD)

    assert was_ours
    assert not await tool_records.renew(slow, HELD)
    with pytest.raises(OvertakenError):
        await tool_records.finish(slow, OUTCOME)
    with pytest.raises(OvertakenError):
        await tool_records.keep(slow, "c1", 7)
    await tool_records.release(slow)
    assert await tool_records.outcome(slow.task_id, "c1") is None
    assert await tool_records.kept(slow.task_id, "c1") is None
    assert await tool_records.claim(lease(slow.task_id), HELD) is Claim.HELD


async def test_an_earlier_attempt_comes_too_late(tool_records: SingleRecords) -> None:
    """An earlier attempt, delayed by a suspended worker, is refused after a later one in any state."""
    task_id = new_id()
    early, late = (replace(lease(task_id), order=order) for order in ("1", "2"))
    await tool_records.claim(late, 0)
    claims = [await tool_records.claim(early, HELD)]
    await tool_records.release(late)
    claims.append(await tool_records.claim(early, HELD))
    await tool_records.claim(late, HELD)
    await tool_records.finish(late, OUTCOME)
    claims.append(await tool_records.claim(early, HELD))

    assert claims == [Claim.OVERTAKEN] * 3
    assert await tool_records.renew(late, HELD)


async def test_a_revoked_call_is_nobodys(tool_records: SingleRecords) -> None:
    """A revoked call's worker is told by the next renewal; a recorded outcome stands."""
    at_work, done = lease(new_id()), lease(new_id())
    await tool_records.claim(at_work, HELD)
    await tool_records.finish(done, OUTCOME)

    await tool_records.revoke(lease(at_work.task_id))
    await tool_records.revoke(lease(done.task_id))

    assert not await tool_records.renew(at_work, HELD)
    assert await tool_records.claim(lease(at_work.task_id), HELD) is Claim.LOST
    assert await tool_records.claim(lease(done.task_id), HELD) is Claim.FINISHED


async def test_the_first_outcome_stands(tool_records: SingleRecords) -> None:
    """The first outcome stands: a second one is not recorded, and the first is returned."""
    ours = lease(new_id())
    assert await tool_records.finish(ours, OUTCOME) == OUTCOME

    assert await tool_records.finish(ours, OTHER) == OUTCOME
    await tool_records.release(ours)  # by an attempt that was given up
    with pytest.raises(OvertakenError):
        await tool_records.finish(lease(ours.task_id), OTHER)
    assert await tool_records.outcome(ours.task_id, "c1") == OUTCOME
    assert await tool_records.claim(lease(ours.task_id), HELD) is Claim.FINISHED


async def test_an_outcome_that_cannot_be_read_is_unknown(redis: Redis) -> None:
    """An unreadable outcome of a newer version makes no claim the first, and a new outcome is returned."""
    ours, records = lease(new_id()), SingleRecords(redis)
    newer = '{"role":"tool","call_id":"c1","name":"search","content":"found","outcome":"postponed"}'
    await records.finish(ours, OTHER)
    await redis.hset(outcomes_key(ours.task_id), "c1", newer)

    assert await records.claim(ours, HELD) is Claim.FINISHED
    assert await records.outcome(ours.task_id, "c1") is None
    assert await records.finish(ours, OUTCOME) == OUTCOME
    assert await redis.hget(outcomes_key(ours.task_id), "c1") == newer


async def test_long_outcomes_are_kept_compressed(redis: Redis) -> None:
    """Long outcomes are compressed, and returned unchanged to any later attempt."""
    ours, records = lease(new_id()), SingleRecords(redis)
    long = OUTCOME.model_copy(update={"content": "zażółć gęślą jaźń " * 50})

    for outcome in (long, long, OUTCOME):
        assert await records.finish(ours, outcome) == long
    assert await records.outcome(ours.task_id, "c1") == long
    (claimed,) = await records.run(records.claiming(lease(ours.task_id), HELD))
    assert claimed.outcome == long
    assert await redis.hstrlen(outcomes_key(ours.task_id), "c1") < 200


async def test_that_a_call_has_ended_is_known_when_its_outcome_is_forgotten(redis: Redis) -> None:
    """After its outcome has expired, a call is known as started, and a new outcome may be recorded."""
    ours, records = lease(new_id()), SingleRecords(redis)
    await records.finish(ours, OUTCOME)
    await redis.delete(outcomes_key(ours.task_id))

    again = lease(ours.task_id)
    (claimed,) = await records.run(records.claiming(again, HELD))

    assert (claimed.claim, claimed.outcome) == (Claim.FINISHED, None)
    assert await records.finish(again, OTHER) == OTHER
    assert await records.outcome(ours.task_id, "c1") == OTHER


async def test_a_released_call_is_claimed_anew(tool_records: SingleRecords) -> None:
    """A released call is claimed again once.

    A release without a claim, or a late renewal, changes nothing.
    """
    ours = lease(new_id())
    await tool_records.release(ours)
    await tool_records.claim(ours, HELD)

    await tool_records.release(ours)

    assert not await tool_records.renew(ours, HELD)
    claims = [await tool_records.claim(lease(ours.task_id), HELD) for _ in range(2)]
    assert claims == [Claim.FIRST, Claim.HELD]


async def test_a_call_may_be_released_for_later(tool_records: SingleRecords) -> None:
    """A call may be released for later: it is held until then, and the next claim is the first."""
    ours = lease(new_id())
    await tool_records.claim(ours, HELD)

    await tool_records.release(ours, HELD)
    later = await tool_records.claim(lease(ours.task_id), HELD)
    soon = lease(new_id())
    await tool_records.claim(soon, HELD)
    await tool_records.release(soon, 0.01)
    while (claim := await tool_records.claim(lease(soon.task_id), HELD)) is Claim.HELD:
        pass

    assert (later, claim) == (Claim.HELD, Claim.FIRST)
    assert not await tool_records.renew(ours, HELD)


async def test_a_lease_survives_an_emptied_redis(redis: Redis) -> None:
    """After a loss of Redis' data, the next renewal restores the lease."""
    records, ours = SingleRecords(redis), lease(new_id())
    await records.claim(ours, HELD)
    await redis.delete(records_key(ours.task_id))

    assert await records.renew(ours, HELD)
    assert await records.claim(lease(ours.task_id), HELD) is Claim.HELD


@pytest.mark.parametrize("value", [{"job": "é\x00", "at": [1, 2.5, None]}, "text", 0, False, []], ids=repr)
async def test_a_call_keeps_the_last_value(tool_records: SingleRecords, value: JsonValue) -> None:
    """A call stores its last value of any JSON; at first, and after None, there is none."""
    ours = lease(new_id(), "c1.1")
    task_id = ours.task_id
    before = await tool_records.kept(task_id, "c1")

    await tool_records.keep(ours, "c1", "earlier")
    await tool_records.keep(ours, "c1", value)

    assert before is None
    assert await tool_records.kept(task_id, "c1") == value
    assert await tool_records.kept(task_id, "c2") is None
    assert await tool_records.kept(new_id(), "c1") is None
    await tool_records.keep(ours, "c1", None)
    assert await tool_records.kept(task_id, "c1") is None


async def test_what_is_kept_is_no_claim_and_no_outcome(tool_records: SingleRecords) -> None:
    """A stored value is neither claim nor outcome, and survives a release and an outcome."""
    ours = lease(new_id())
    await tool_records.keep(ours, "c1", 7)
    claims = [await tool_records.claim(ours, HELD)]
    await tool_records.release(ours)
    claims.append(await tool_records.claim(ours, HELD))
    await tool_records.finish(ours, OUTCOME)

    assert claims == [Claim.FIRST, Claim.FIRST]
    assert await tool_records.kept(ours.task_id, "c1") == 7


async def test_each_attempt_at_a_call_gets_a_greater_number(tool_records: SingleRecords) -> None:
    """Each attempt at a call gets a greater number, also after a revocation; calls count apart.

    It is at least Temporal's, which may start again. A repeated claim keeps its number, and a claim may leave
    it uncounted.
    """
    task_id = new_id()

    async def count(attempt: int, call_id: str = "c1", token: str = "", *, counts: bool = True) -> int:
        ours = Lease(task_id, call_id, token or uuid4().hex, attempt=attempt)
        (claimed,) = await tool_records.run(tool_records.claiming(ours, 0))
        if not counts:
            await tool_records.run(tool_records.releasing(ours, counts=False))
        return claimed.attempts

    assert [await count(attempt) for attempt in (1, 5, 1, 2)] == [1, 5, 6, 7]
    await tool_records.revoke(lease(task_id))
    assert await count(1) == 8
    assert [await count(1, "c2", "same") for _ in range(2)] == [1, 1]
    assert [await count(1, "c2", counts=False), await count(1, "c2")] == [2, 2]
    assert [await count(1, "c3", counts=False), await count(1, "c3")] == [1, 1]


@pytest.mark.parametrize(
    ("claims", "is_done"),
    [
        ("FIRST", (True, False, False, False)),
        ("FIRST AGAIN", (True, False, True, False)),
        ("DONE", (False, False, False, True)),
    ],
)
async def test_what_is_done_under_a_claim_is_done_under_no_other(
    redis: Redis, claims: str, is_done: tuple[bool, ...]
) -> None:
    """Commands in the trip of a claim or an outcome take effect only in the stated cases.

    Ours, held, lost or ended.
    """
    records, views, ours = ToolRecords(redis), TaskViews(redis), lease(new_id())
    late = replace(lease(ours.task_id), order="2")

    async def takes(step: Step[Any], by: Lease) -> bool:
        writing = views.publishing(ours.task_id, "run", [Warned(text="w")], by, claims=claims)
        return (await run_scripts(redis, step, writing))[1] is not None

    taken = [await takes(records.claiming(ours, HELD), ours), await takes(records.claiming(late, HELD), late)]
    await records.renew(ours, 0)
    taken += [
        await takes(records.claiming(late, HELD), late),
        await takes(records.finishing(late, OUTCOME), late),
    ]

    assert tuple(taken) == is_done
    assert len(await stream_of(views, ours.task_id)) == sum(is_done)


# Writes for a call are refused to an overtaken attempt in the same step.

Write = Callable[[Redis, str, Lease | None], Awaitable[object]]

RESULT = ToolMessage(call_id="call", name="tool", content="late")

WRITES: dict[str, Write] = {
    "events": lambda redis, task, lease: TaskViews(redis).publish(
        task, "run", [status(2), Warned(text="late")], lease
    ),
    "transcript": lambda redis, task, lease: Transcripts(redis).put(task, "run", 0, [said("x")], lease),
    "message": lambda redis, task, lease: Transcripts(redis).put(task, "run", 1, [said("x")], lease),
    "result": lambda redis, task, lease: _add(Transcripts(redis), task, RESULT, lease),
    "reply": lambda redis, task, lease: Transcripts(redis).put_reply(
        task, "run", 1, AssistantMessage(), lease
    ),
}


async def _add(transcripts: Transcripts, task: str, result: ToolMessage, lease: Lease | None) -> None:
    await transcripts.add(task, "run", 1, result, lease)


async def _kept(redis: Redis, pattern: str) -> dict[str, object]:
    return {str(key): await redis.dump(key) for key in await redis.keys(pattern)}


@pytest.mark.parametrize("how", ["claimed", "given back", "finished", "revoked"])
@pytest.mark.parametrize("name", WRITES)
async def test_an_overtaken_attempt_writes_nothing(redis: Redis, name: str, how: str) -> None:
    """An overtaken attempt writes nothing, whatever the later one did.

    That one, and writers without a lease, may.
    """
    task_id, write = new_id(), WRITES[name]
    first, second = Lease(task_id, "call", "first", "1"), Lease(task_id, "call", "second", "2")
    views, records = TaskViews(redis), SingleRecords(redis)
    await views.create(submitted(task_id))
    await Transcripts(redis).put(task_id, "run", 0, [said("m")])
    await records.claim(first, 0)
    if how == "revoked":
        await records.revoke(second)
    else:
        await records.claim(second, 10)
    if how == "given back":
        await records.release(second)
    if how == "finished":
        await records.finish(second, RESULT)
    before = await _kept(redis, f"everloop:task:{{{task_id}}}:*")

    with pytest.raises(OvertakenError):
        await write(redis, task_id, first)

    assert await _kept(redis, f"everloop:task:{{{task_id}}}:*") == before
    await write(redis, task_id, second)
    assert await _kept(redis, f"everloop:task:{{{task_id}}}:*") != before
    await write(redis, task_id, None)


async def test_an_attempt_that_waits_does_not_silence_the_one_at_work(redis: Redis) -> None:
    """A waiting attempt does not overtake a live one that Temporal timed out: it finds the lease."""
    task_id = new_id()
    first, second = Lease(task_id, "call", "first", "1"), Lease(task_id, "call", "second", "2")
    views, records = TaskViews(redis), SingleRecords(redis)
    await views.create(submitted(task_id))
    await records.claim(first, 10)
    await records.claim(second, 10)

    for lease in (first, second):
        await views.publish(task_id, "run", [Warned(text="told")], lease)

    assert len(await views.read({task_id: "0-0"}, wait=0)) == 3
