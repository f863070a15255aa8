"""Cheaper calls: quick ones, cached ones, and batches."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import pytest
from pydantic import BaseModel
from redis.asyncio import Redis
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError

from everloop.activities.tools import function
from everloop.activities.tools.tool_results import MOST_CACHED
from everloop.agents.errors import ToolDefinitionError
from everloop.agents.hooks import HookContext
from everloop.agents.limits import Retries
from everloop.agents.plugins import Plugin
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.tool_records import ToolResults
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import QUICK_RESULT
from everloop.workflows.contract.events import Resumed, RetryScheduled, ToolCompleted, ToolStarted, Warned
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.tasks import Identity
from tests.support.fakes.failing import failing
from tests.support.recorded_metrics import Recorded
from tests.support.rigs.tool_rig import ToolRig


class Lookup(ToolRig):
    """The quick tool `look`, which fails, hangs, blocks or returns much in its first run."""

    def __init__(self, first: str = "", *, retries: Retries | None = None) -> None:
        self.runs: list[int] = []
        self.given_up: Callable[[], object] = lambda: None

        @tool(idempotent=True, quick=True, max_result=10 * QUICK_RESULT, retries=retries)
        async def look(context: ToolContext) -> str:
            """Look."""
            self.runs.append(context.attempt)
            if len(self.runs) == 1 and first == "fails":
                raise ValueError("not yet")
            if len(self.runs) == 1 and first == "blocks":
                time.sleep(0.3)  # noqa: ASYNC251 -- as authors do
                self.given_up()
            if len(self.runs) == 1 and first in {"hangs", "blocks"}:
                await asyncio.Event().wait()
            return "x" * (2 * QUICK_RESULT) if first == "says much" else "found"

        super().__init__(look)

    async def fail_quickly(self) -> ApplicationError:
        """Make a quick call that fails, and return its failure."""
        with pytest.raises(ApplicationError) as failed:
            await self.quick_call(self.call("look"))
        return failed.value

    async def go_on(self, tried: str | None) -> ToolMessage:
        """Make the call as the workflow does after a quick one."""
        result = await self.attempt_call(self.call("look").model_copy(update={"tried": tried}))
        assert isinstance(result, ToolMessage)
        return result


async def test_a_quick_call_does_all_that_others_do() -> None:
    """A quick call is recorded, cached and published as others are; one that has ended is not repeated."""
    rig = Lookup()
    result = await rig.quick_call(rig.call("look"))
    assert result == await rig.quick_call(rig.call("look"))
    assert rig.runs == [1]
    begun = ToolStarted(call_id="call", name="look", attempt=1)
    completed = ToolCompleted(call_id="call", name="look", outcome="ok", result="found", size=5)
    assert await rig.events() == [begun, completed, completed]


async def test_a_quick_call_whose_worker_was_lost() -> None:
    """A quick call whose worker died becomes a normal one, so that Temporal counts its attempts."""
    rig = Lookup()
    await rig.lose(rig.call("look"))
    rig.attempt = 1
    failed = await rig.fail_quickly()
    assert failed.type == failures.NOT_QUICK
    assert (await rig.go_on(failed.type)).content == "found"
    assert len(rig.runs) == 1


async def test_a_quick_call_that_blocks_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick call that blocks the worker is logged, and not started again as quick after its timeout."""
    monkeypatch.setattr(function, "QUICK_TIME", 0.2)
    rig = Lookup("blocks")
    quick = asyncio.create_task(rig.quick_call(rig.call("look")))
    rig.given_up = quick.cancel
    with capture_logs() as logs, pytest.raises(ApplicationError) as failed:
        await quick
    assert failed.value.type == failures.NOT_QUICK
    assert [log["log_level"] for log in logs if "quick tool is slow" in log["event"]] == ["warning"]
    assert (await rig.fail_quickly()).type == failures.NOT_QUICK
    assert (await rig.go_on(failures.NOT_QUICK)).content == "found"
    assert len(rig.runs) == 2


async def test_a_quick_call_that_is_tried_again() -> None:
    """A failed quick call counts as an attempt, and its retry is not overtaken by a clock that is ahead."""
    rig = Lookup("fails", retries=Retries(attempts=2, delay=timedelta(seconds=7)))
    failed = await rig.fail_quickly()
    assert failed.type == failures.TOOL_FAILED
    assert failed.next_retry_delay
    assert (await rig.go_on(failed.type)).content == "found"
    assert rig.runs == [1, 2]
    kinds = [type(event) for event in await rig.events()]
    assert kinds == [ToolStarted, RetryScheduled, Resumed, ToolStarted, ToolCompleted]


async def test_a_quick_call_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick call that hangs is cancelled, logged, and made as a normal one."""
    recorded = Recorded()
    monkeypatch.setattr(function, "QUICK_TIME", 0.2)
    rig = Lookup("hangs")
    with capture_logs() as logs:
        failed = await rig.fail_quickly()
    assert failed.type == failures.NOT_QUICK
    assert (await rig.go_on(failed.type)).content == "found"
    assert rig.runs == [1, 2]
    assert any(
        isinstance(event, Warned) and "look is marked as quick" in event.text for event in await rig.events()
    )
    assert [log["log_level"] for log in logs if "quick tool is slow" in log["event"]] == ["warning"]
    assert recorded.counts("everloop.tool.slow") == {("agent", "look"): 1}
    assert recorded.counts("everloop.tool.calls") == {
        ("agent", "retried", "look"): 1,
        ("agent", "ok", "look"): 1,
    }


async def test_a_quick_call_that_is_slow_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a slow quick call stands, and the slowness is logged."""
    monkeypatch.setattr(function, "SLOW", 0)
    rig = Lookup()
    reply = await rig.quick_call(rig.call("look"))
    assert isinstance(reply, ToolMessage)
    assert reply.content == "found"
    assert [type(event) for event in await rig.events()] == [ToolStarted, ToolCompleted, Warned]


async def test_a_quick_result_that_is_large_is_not_worked_out_again() -> None:
    """A large quick result is recorded, and reaches the workflow by a normal activity."""
    rig = Lookup("says much")
    failed = await rig.fail_quickly()
    assert failed.type == failures.NOT_QUICK
    assert len((await rig.go_on(failed.type)).content) == 2 * QUICK_RESULT
    assert rig.runs == [1]


WRONG = [
    ({"quick": True}, "it is quick, and not idempotent; .* idempotent=True"),
    ({"quick": True, "idempotent": True, "task_queue": "gpu"}, "it is quick, and has a task_queue"),
    ({"cache_for": "owner"}, 'cache_for="owner" is for cached results; say for how long'),
]


class City(BaseModel):
    """The arguments of one call."""

    name: str


class Weather(ToolRig):
    """The tool `weather`, which runs for several cities at once; `result` makes its result of their names."""

    def __init__(self, result: Callable[[list[str]], object], *plugins: Plugin) -> None:
        self.runs: list[list[str]] = []

        @tool(batch=True)
        def weather(cities: list[City]) -> object:
            """Return the weather."""
            self.runs.append([city.name for city in cities])
            return result(self.runs[-1])

        super().__init__(weather, plugins=plugins)

    async def ask_for(self, *arguments: str, elsewhere: int = 0) -> list[str]:
        """Make concurrent calls, and others elsewhere; return the result of each for the model."""
        together = {"together": len(arguments) + elsewhere}
        calls = [
            self.call("weather", each, call_id=f"c{number}").model_copy(update=together)
            for number, each in enumerate(arguments)
        ]
        results = await asyncio.gather(*(self.run(call) for call in calls))
        return [f"{result.outcome} {result.content}" for result in results]


def _raise(_names: list[str]) -> object:
    raise ValueError("no weather")


def _ask(_names: list[str]) -> object:
    raise InputRequired("Where?")


SHORT = "error TypeError: a tool with batch=True returns a list of as many results as calls, here 2"

BATCHES: dict[str, tuple[Callable[[list[str]], object], list[str]]] = {
    "each has its own result": (
        lambda names: [f"{name}: sun" for name in names],
        ["ok Bonn: sun", "ok Rome: sun"],
    ),
    "one failed": (lambda _: ["sun", ValueError("fog")], ["ok sun", "error ValueError: fog"]),
    "all failed": (_raise, ["error ValueError: no weather"] * 2),
    "a result is missing": (lambda _: ["sun"], [SHORT] * 2),
    "no list": (lambda _: "sun", [SHORT] * 2),
    "it asks": (
        _ask,
        ["error RuntimeError: a tool with batch=True runs for several calls, and can ask nobody"] * 2,
    ),
}


@pytest.mark.parametrize("case", BATCHES)
async def test_calls_of_a_batch_run_as_one(case: str) -> None:
    """Calls of a batch run as one, each with its own arguments and result."""
    result, told = BATCHES[case]
    rig = Weather(result)
    assert await rig.ask_for('{"name": "Bonn"}', '{"name": "Rome"}') == told
    assert rig.runs == [["Bonn", "Rome"]]


async def test_a_batch_waits_for_no_call_that_does_not_run() -> None:
    """A batch does not wait for a call that does not run here, such as one with invalid arguments."""
    rig = Weather(lambda names: names)
    calls = '{"name": "Bonn"}', '{"nam": "Oslo"}', '{"name": "Rome"}'
    bonn, wrong, rome = await rig.ask_for(*calls, elsewhere=2)
    assert (bonn, rome) == ("ok Bonn", "ok Rome")
    assert "nam: Extra inputs are not permitted" in wrong
    assert rig.runs == [["Bonn", "Rome"]]


async def test_a_batch_waits_for_a_call_that_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch waits for a call whose plugins still judge it."""
    monkeypatch.setattr(function, "BATCH_WINDOW", 0)
    looked = asyncio.Event()

    class Looking(Plugin):
        name = "looking"

        async def before_tool(self, context: HookContext, call: ToolCall) -> ToolCall:
            if "Bonn" in call.arguments:
                asyncio.get_running_loop().call_later(0.01, looked.set)
                await looked.wait()
            return call

    rig = Weather(lambda names: names, Looking())
    assert await rig.ask_for('{"name": "Bonn"}', '{"name": "Rome"}') == ["ok Bonn", "ok Rome"]
    assert [sorted(run) for run in rig.runs] == [["Bonn", "Rome"]]


async def test_a_call_that_is_cancelled_leaves_its_batch() -> None:
    """A cancelled call leaves its batch; the function is cancelled with the last one."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @tool(batch=True)
    async def weather(cities: list[City]) -> list[str]:
        """Return the weather."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return [city.name for city in cities]

    rig = ToolRig(weather)
    calls = [rig.call("weather", '{"name": "Bonn"}', call_id=id_) for id_ in ("a", "b")]
    first, second = (asyncio.create_task(rig.run(call.model_copy(update={"together": 2}))) for call in calls)
    await begun.wait()
    first.cancel()
    await asyncio.wait([first])
    assert not cancelled.is_set()
    second.cancel()
    await cancelled.wait()


async def _takes_two(cities: list[City], days: int) -> list[str]:
    """Return the weather."""
    return [city.name * days for city in cities]


async def _takes_names(cities: list[str]) -> list[str]:
    """Return the weather."""
    return cities


@pytest.mark.parametrize("function", [_takes_two, _takes_names])
def test_what_runs_for_several_calls_takes_a_list(function: Callable[..., object]) -> None:
    """The function of a batch takes a list of one model, which gives a call names and types."""
    with pytest.raises(ToolDefinitionError, match=r"takes one parameter, a list of a pydantic model"):
        tool(batch=True)(function)


@pytest.mark.parametrize(("settings", "problem"), WRONG)
def test_what_a_tool_cannot_be(settings: dict[str, bool], problem: str) -> None:
    """Invalid combinations of settings are refused where the tool is defined."""
    with pytest.raises(ToolDefinitionError, match=problem):

        @tool(**settings)  # pyright: ignore[reportArgumentType] -- wrong on purpose
        def look() -> str:
            """Look."""
            return ""


class Rates(ToolRig):
    """The tool `rate`, whose results are cached."""

    def __init__(self, cached: ToolResults, cache_for: Literal["context", "owner", "everybody"]) -> None:
        self.runs: list[str] = []

        @tool(cache=timedelta(minutes=1), cache_for=cache_for)
        async def rate(currency: str, context: ToolContext, days: int = 1) -> str:
            """Return a rate."""
            self.runs.append(currency)
            match currency:
                case "secret":
                    await context.secret("token")
                case "kept":
                    await context.artifacts.write_file("rates", b"1.1", media_type="text/plain")
                case "read":
                    await context.artifacts.list()
                case "wrong":
                    raise ValueError(currency)
                case "long":
                    return "x" * (MOST_CACHED + 1)
                case _:
                    pass
            return f"{days}: {len(self.runs)}"

        super().__init__(rate, cached=cached)
        self._count = 0

    async def rate(self, arguments: str, *, subject: str = "", **task: str) -> ToolMessage:
        """Call `rate` for this caller and a task that differs in these fields from the rig's."""
        self._count += 1
        call = self.call("rate", arguments, call_id=f"call-{self._count}")
        asked = {"task": call.task.model_copy(update=task), "identity": Identity(subject=subject)}
        return await self.run(call.model_copy(update=asked))


USD = '{"currency": "USD", "days": 2}'

AGAIN: list[tuple[Literal["context", "owner", "everybody"], str, dict[str, str], bool]] = [
    ("context", USD, {}, True),
    ("context", ' {"days":2,\n"currency": "USD"}', {"task_id": "other", "run_id": "other"}, True),
    ("context", '{"currency": "USD", "days": 3}', {}, False),
    ("context", USD, {"context_id": "other"}, False),
    ("context", USD, {"agent_version": "2"}, False),
    ("owner", USD, {"context_id": "other"}, True),
    ("owner", USD, {"owner": "other"}, False),
    ("everybody", USD, {"owner": "other", "context_id": "other", "subject": "other"}, True),
    ("context", USD, {"subject": "other"}, False),
    ("owner", USD, {"subject": "other"}, False),
]


@pytest.mark.parametrize(("cache_for", "arguments", "task", "is_cached"), AGAIN)
async def test_a_result_is_told_again(
    redis: Redis,
    cache_for: Literal["context", "owner", "everybody"],
    arguments: str,
    task: dict[str, str],
    *,
    is_cached: bool,
) -> None:
    """A cached result is returned for the same arguments and callers, and marked as cached."""
    rig = Rates(ToolResults(redis), cache_for)
    owner = {"owner": rig.task_id}  # an owner of this test alone
    first = await rig.rate(USD, **owner)
    again = await rig.rate(arguments, **(owner | task))
    assert (first.content, first.cached) == ("2: 1", False)
    assert again.cached == is_cached
    assert len(rig.runs) == (1 if is_cached else 2)
    if is_cached and not task:
        assert again.content == first.content
        assert [e.cached for e in await rig.events() if isinstance(e, ToolCompleted)] == [False, True]


@pytest.mark.parametrize("currency", ["secret", "kept", "read", "wrong", "long"])
async def test_a_result_that_is_not_told_again(redis: Redis, currency: str) -> None:
    """A result is not cached after a secret, an artifact written or read, a failure, or beyond a size."""
    rig = Rates(ToolResults(redis), "context")
    await rig.supply("token", "a secret word")
    results = [await rig.rate(f'{{"currency": "{currency}"}}', owner=rig.task_id) for _ in range(2)]
    assert [result.cached for result in results] == [False, False]
    assert len(rig.runs) == 2


@pytest.mark.parametrize("text", ["\ud800", "sealed: a letter"])
async def test_whatever_a_tool_says_is_told_again(redis: Redis, text: str) -> None:
    """Any text is cached, also with unpaired surrogates or with the prefix of encrypted content."""
    results = ToolResults(redis)
    await results.put("digest", text, timedelta(minutes=1))
    assert await results.get("digest") == text


@pytest.mark.parametrize(("frozen", "is_cached"), [(59.0, True), (60.0, False)])
async def test_a_result_is_as_old_as_its_call(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, frozen: float, *, is_cached: bool
) -> None:
    """The age of a result counts from its call, so that a suspended worker caches no stale one."""
    rig = Rates(ToolResults(redis), "context")
    monkeypatch.setattr("everloop.activities.tools.tool_results.monotonic", lambda: frozen * len(rig.runs))
    again = [await rig.rate(USD, owner=rig.task_id) for _ in range(2)][1]
    assert again.cached == is_cached


async def test_without_its_cache_a_tool_runs(redis: Redis) -> None:
    """Without the cache's store, a tool runs."""
    rig = Rates(failing(ToolResults(redis), "get", "put"), "context")
    assert [(await rig.rate(USD)).content for _ in range(2)] == ["2: 1", "2: 2"]
