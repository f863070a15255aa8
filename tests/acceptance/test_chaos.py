"""Fifty tasks with effects while processes are killed at random: nothing lost, nothing twice."""

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest
from a2a.client import A2AClientError
from a2a.types.a2a_pb2 import GetTaskRequest, SendMessageRequest, Task, TaskState

from tests.support.a2a_client import Answer, connected, request, response_of
from tests.support.chaos_agents import Ledger
from tests.support.deployment import Deployment, Gateway, running_deployment
from tests.support.processes import ServerProcess, redis_answers, wait_until_answers
from tests.support.scripted_openai import CallFragment, ReceivedRequest, Reply, ScriptedOpenAI, tool_call

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")
"""The processes of one run have to agree on the names of the tests."""

SEED = int(os.environ.get("CHAOS_SEED") or Random(RUN).randrange(10**6))  # noqa: S311 -- repeatable on purpose
"""Stands in the test's name; set CHAOS_SEED to harm at the same points again."""

TASKS = 50
WORKERS = 3
KILLS = 8
PAUSE = (0.5, 1.5)
"""Seconds between a worker that is ready again and the next kill."""

SPREAD = 4.0
"""Seconds over which the tasks begin, so that each kill finds some in every step."""

PATIENCE = 90.0
"""Seconds after which a task counts as lost; a lost call alone is noticed after 10."""

PACE = 0.1
"""Seconds between two pieces of the model's text: time to be killed in."""

COMPLETED = TaskState.TASK_STATE_COMPLETED
UNKNOWN = "unknown"
SAID = "I will see."
BOOKKEEPER = "tests.support.chaos_agents:bookkeeper"

_log = logging.getLogger(__name__)


class Bookkeeping:
    """The model: asks for a few calls, then answers with what each of them came to."""

    def __init__(self, seed: int, ledger: Path) -> None:
        self._seed = seed
        self._arguments = json.dumps({"ledger": str(ledger)})

    def plan(self, task: str) -> list[list[tuple[str, str]]]:
        """Return the calls of each reply, as (call id, tool): 3 or 4 in all, of both kinds."""
        chance = Random(f"{self._seed} {task}")  # noqa: S311 -- repeatable on purpose
        kinds = ["deposit", "charge", *chance.choices(["deposit", "charge"], k=chance.choice([1, 2]))]
        chance.shuffle(kinds)
        calls = [(f"call_{number}", kind) for number, kind in enumerate(kinds, 1)]
        cut = chance.randrange(1, len(calls))
        return [calls[:cut], calls[cut:]]

    def reply(self, received: ReceivedRequest) -> Reply:
        """Answer from the conversation alone: the same one always gets the same reply."""
        _, user, *rest = received.conversation
        plan = self.plan(str(user["content"]))
        results = {str(m["tool_call_id"]): str(m["content"]) for m in rest if m["role"] == "tool"}
        for calls, known in zip(plan, accumulate(map(len, plan), initial=0), strict=False):
            if len(received.tool_results) == known:
                return Reply([*_paced(SAID), *self._ask(calls)])
        answer = {call_id: _understood(result) for call_id, result in results.items()}
        return Reply(_paced(json.dumps(answer)))

    def _ask(self, calls: Sequence[tuple[str, str]]) -> list[CallFragment]:
        return [
            tool_call(kind, self._arguments, id_=call_id, index=index)
            for index, (call_id, kind) in enumerate(calls)
        ]


def _understood(result: str) -> str:
    return UNKNOWN if "may or may not have taken effect" in result else result


def _paced(text: str) -> list[str | asyncio.Event]:
    """Cut a text in four, with pauses between."""
    size = -(-len(text) // 4)
    loop = asyncio.get_running_loop()
    steps: list[str | asyncio.Event] = []
    for number, start in enumerate(range(0, len(text), size)):
        pause = asyncio.Event()
        loop.call_later(PACE * number, pause.set)
        steps += [pause, text[start : start + size]]
    return steps


@dataclass
class Chaos:
    """Kills at random points, and always starts again what it has killed."""

    everloop: Deployment
    chance: Random
    workers: list[ServerProcess]
    gateways: list[Gateway]

    async def harm(self) -> None:
        """Kill workers one by one, and in between a gateway and Redis once each."""
        others = self.chance.sample(range(1, KILLS // 2 + 1), k=2)
        for number in range(KILLS):
            await asyncio.sleep(self.chance.uniform(*PAUSE))
            await self._kill_a_worker()
            if number == others[0]:
                await self._kill_a_gateway()
            if number == others[1]:
                await self._restart_redis()

    async def _kill_a_worker(self) -> None:
        _log.info("a worker is killed")
        self.workers.pop(self.chance.randrange(len(self.workers))).kill()
        self.workers.append(await self.everloop.add_worker())

    async def _kill_a_gateway(self) -> None:
        _log.info("a gateway is killed")
        gateway = self.gateways.pop(self.chance.randrange(len(self.gateways)))
        gateway.process.kill()
        self.gateways.append(await self.everloop.add_gateway())

    async def _restart_redis(self) -> None:
        valkey, url = self.everloop.valkey, self.everloop.redis_url
        _log.info("Redis is killed")
        valkey.kill()
        valkey.start()
        await wait_until_answers(valkey, lambda: redis_answers(url), "valkey")


@dataclass(frozen=True)
class Outcome:
    """A task at its end: as GetTask shows it, and as its subscriber saw it."""

    name: str
    task: Task
    seen: Answer


async def _work(number: int, gateways: Sequence[Gateway]) -> Outcome:
    """Send a message and follow its task to the end; when a gateway is lost, send it again to another."""
    await asyncio.sleep(SPREAD * number / TASKS)
    message = request(f"Task {number}")
    attempt = number
    while True:
        try:
            return await _follow(message, gateways[attempt % len(gateways)].url)
        except A2AClientError:
            attempt += 1


async def _follow(message: SendMessageRequest, url: str) -> Outcome:
    seen = Answer()
    async with connected(url) as client:
        await seen.read(client.send_message(message))
        task = await client.get_task(GetTaskRequest(id=seen.task_id))
    _log.info("%s is %s", message.message.parts[0].text, task.status.state)
    return Outcome(message.message.parts[0].text, task, seen)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [SEED])
async def test_chaos(tmp_path: Path, seed: int) -> None:
    """Every task completes with the right answer; no effect is lost, and none happened twice.

    A call that is not idempotent happened at most once; where its end was lost, the model was told so.
    """
    ledger, books = Ledger(tmp_path / "ledger"), Bookkeeping(seed, tmp_path / "ledger")
    ledger.open()
    async with (
        ScriptedOpenAI(books.reply) as model,
        running_deployment(tmp_path, model.base_url, agents=BOOKKEEPER) as everloop,
    ):
        chaos = Chaos(
            everloop,
            Random(seed),  # noqa: S311 -- repeatable on purpose
            list(await asyncio.gather(*(everloop.add_worker() for _ in range(WORKERS)))),
            list(await asyncio.gather(*(everloop.add_gateway() for _ in range(2)))),
        )
        tasks = [asyncio.create_task(_work(n, chaos.gateways)) for n in range(TASKS)]
        harming = asyncio.create_task(chaos.harm())
        _, lost = await asyncio.wait(tasks, timeout=PATIENCE)
        assert not lost, f"{len(lost)} tasks did not end"
        harming.cancel()
        outcomes = await asyncio.gather(*tasks)

    unknown = [_check_outcome(outcome, books, ledger) for outcome in outcomes]
    _check_ledger(ledger, outcomes, books)
    asked_again = len(model.requests) - sum(len(books.plan(outcome.name)) + 1 for outcome in outcomes)
    begun_again = len(ledger.attempts()) - len(ledger.deposits())
    _log.info("asked again: %d, begun again: %d, unknown: %d", asked_again, begun_again, sum(unknown))
    assert asked_again + begun_again + sum(unknown), "the chaos has harmed nothing"


def _check_outcome(outcome: Outcome, books: Bookkeeping, ledger: Ledger) -> int:
    """Check one task against the ledger; return how many outcomes its model had to take as unknown."""
    task, seen, plan = outcome.task, outcome.seen, books.plan(outcome.name)
    assert task.status.state == COMPLETED
    assert seen.states.count(COMPLETED) == 1
    assert seen.states[-1] == COMPLETED
    assert seen.text == response_of(task)
    assert seen.finals <= 1
    assert {message.message_id for message in task.history} <= _heard_by(seen)
    said = [message.parts[0].text for message in task.history]
    assert said == [outcome.name, *(SAID for _ in plan)]
    deposits, charges = dict(ledger.deposits()), dict(ledger.charges())
    answer: dict[str, str] = json.loads(response_of(task))
    assert list(answer) == [call_id for calls in plan for call_id, _ in calls]
    for call_id, kind in (call for calls in plan for call in calls):
        owner = f"{task.id}/{call_id}"
        if kind == "deposit":
            assert answer[call_id] == deposits[owner]
        else:
            assert answer[call_id] in {charges.get(owner), UNKNOWN}
    return list(answer.values()).count(UNKNOWN)


def _heard_by(subscriber: Answer) -> set[str]:
    """Return the ids of all messages that a subscriber was shown."""
    heard: set[str] = set()
    for response in subscriber.responses:
        heard |= {message.message_id for message in response.task.history}
        heard |= {response.task.status.message.message_id, response.status_update.status.message.message_id}
    return heard


def _check_ledger(ledger: Ledger, outcomes: Sequence[Outcome], books: Bookkeeping) -> None:
    """Check that every deposit happened once, every charge at most once, and nothing else."""
    planned = {
        kind: {
            f"{outcome.task.id}/{call_id}"
            for outcome in outcomes
            for calls in books.plan(outcome.name)
            for call_id, kind_ in calls
            if kind_ == kind
        }
        for kind in ("deposit", "charge")
    }
    deposited = [owner for owner, _ in ledger.deposits()]
    charged = [owner for owner, _ in ledger.charges()]
    assert sorted(deposited) == sorted(planned["deposit"])
    assert set(ledger.attempts()) == planned["deposit"]
    assert len(charged) == len(set(charged))
    assert set(charged) <= planned["charge"]
