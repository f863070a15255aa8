"""User code that raises another `BaseException`: one error, reported once, wherever it is called."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, JsonValue
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError

from everloop.activities.hook_runner import Hooks, PluginFailedError
from everloop.activities.model.clients import Clients, make_model
from everloop.activities.model.request import write_prompts
from everloop.activities.tools.agent_catalogue import list_task_tools
from everloop.agents.agent import Turn
from everloop.agents.hooks import ANYBODY, HookContext
from everloop.agents.plugins import Plugin, async_prompt
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.models.catalogue import Provider
from everloop.models.interface import Delta, Model, ModelRequest, TextDelta
from everloop.runtime.environment import StartError
from everloop.runtime.outbound.policy import HeadersError, headers_for
from everloop.worker import closing_plugins
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage
from everloop.workflows.contract.tasks import Identity
from tests.support.rigs.model_rig import agent, model_rig
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.scripted_openai import Reply


class PanicError(BaseException):
    """An exception as libraries in Rust raise it."""


RAISED: dict[str, BaseException] = {
    "exit": SystemExit(2),
    "interrupt": KeyboardInterrupt(),
    "panic": PanicError("out of bounds"),
    "stop": StopIteration(),
    "cancelled": asyncio.CancelledError(),
}

Fail = Callable[[], str]
CONTEXT = HookContext(task_id="t", context_id="c", owner="o", agent_id="agent")


class City(BaseModel):
    """The arguments of a call."""

    name: str = ""


async def _call(offered: Tool, *, quick: bool = False) -> str:
    """Return the model's message; the first attempt has to end with it."""
    rig = ToolRig(offered)
    call = rig.call(offered.name)
    reply = await (rig.quick_call(call) if quick else rig.attempt_call(call))
    assert isinstance(reply, ToolMessage)
    assert reply.outcome == "error"
    return reply.content


async def _sync_tool(fail: Fail) -> str:
    def act() -> str:
        """Act."""
        return fail()

    return await _call(tool(act))


async def _async_tool(fail: Fail) -> str:
    async def act() -> str:
        """Act."""
        return fail()

    return await _call(tool(idempotent=True)(act))


async def _task_of_a_tool(fail: Fail) -> str:
    async def work() -> str:
        return fail()

    async def act() -> str:
        """Act."""
        return (await asyncio.gather(work()))[0]

    return await _call(tool(act))


async def _quick_tool(fail: Fail) -> str:
    def act() -> str:
        """Act."""
        return fail()

    return await _call(tool(quick=True, idempotent=True)(act), quick=True)


async def _batch_tool(fail: Fail) -> str:
    async def act(cities: list[City]) -> list[str]:
        """Act."""
        return [fail() for _ in cities]

    return await _call(tool(batch=True)(act))


async def _result_of_a_batch(fail: Fail) -> str:
    def act(cities: list[City]) -> list[object]:
        """Act."""
        try:
            return [fail() for _ in cities]
        except BaseException as error:  # noqa: BLE001 -- one call failed, and the others have a result
            return [error for _ in cities]

    return await _call(tool(batch=True)(act))


async def _result(fail: Fail) -> str:
    class Silent:
        def __str__(self) -> str:
            return fail()

    def act() -> object:
        """Act."""
        return Silent()

    return await _call(tool(act))


async def _validator(fail: Fail) -> str:
    def act(city: Annotated[str, AfterValidator(lambda _: fail())]) -> str:
        """Act."""
        return city

    rig = ToolRig(tool(act))
    return (await rig.run(rig.call("act", '{"city": "Rome"}'))).content


def _hook(ask: Callable[[Hooks], Awaitable[object]]) -> Callable[[Fail], Awaitable[str]]:
    async def place(fail: Fail) -> str:
        class Failing(Plugin):
            async def before_tool(self, context: HookContext, call: ToolCall) -> None:
                fail()

            async def after_model_call(self, context: HookContext, reply: AssistantMessage) -> None:
                fail()

        with pytest.raises(PluginFailedError) as failed:
            await ask(Hooks(agent(Failing()), CONTEXT))
        return failed.value.message

    return place


async def _listing(fail: Fail) -> str:
    class Failing(Plugin):
        async def list_tools(self, context: HookContext) -> Sequence[Tool]:
            fail()
            return ()

    with pytest.raises(ApplicationError) as failed:
        await list_task_tools(agent(Failing()), CONTEXT)
    return failed.value.message


async def _prompt(fail: Fail) -> str:
    async def write(context: HookContext) -> str:
        return fail()

    with pytest.raises(PluginFailedError) as failed:
        await write_prompts(agent(async_prompt(write)), CONTEXT)
    return failed.value.message


async def _responder(fail: Fail) -> str:
    async def respond(turn: Turn) -> AssistantMessage:
        return AssistantMessage(text=fail())

    async with model_rig(agent=agent(respond=respond)) as rig:
        return (await rig.fail()).message


async def _output(fail: Fail) -> str:
    class Answer(BaseModel):
        name: Annotated[str, AfterValidator(lambda _: fail())]

    async with model_rig([Reply(['{"name": "Rome"}'])], agent=agent(output=Answer)) as rig:
        return (await rig.fail()).message


async def _headers(fail: Fail) -> str:
    async def make(caller: Identity) -> Mapping[str, str]:
        return {"a": fail()}

    with pytest.raises(HeadersError) as failed:
        await headers_for(make, ANYBODY)
    return str(failed.value)


async def _model(fail: Fail) -> str:
    async with model_rig() as rig:
        rig.know(Provider("own", kind=f"{__name__}:Failing", base_url="http://own"))
        FAILING[:] = [fail]
        return (await rig.fail(rig.changed(model="own/model"))).message


FAILING: list[Fail] = []


class Failing(Model):
    """A client of a provider, whose stream fails."""

    def __init__(self, provider: Provider) -> None:
        pass

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        yield TextDelta("Well")
        yield TextDelta(FAILING[0]())

    async def close(self) -> None:
        FAILING[0]()


PLACES: dict[str, Callable[[Fail], Awaitable[str]]] = {
    "sync tool": _sync_tool,
    "async tool": _async_tool,
    "task of a tool": _task_of_a_tool,
    "quick tool": _quick_tool,
    "batch tool": _batch_tool,
    "result of a batch": _result_of_a_batch,
    "result": _result,
    "validator": _validator,
    "hook of a tool": _hook(lambda hooks: hooks.before_tool(ToolCall(id="c", name="act", arguments=""))),
    "hook of a reply": _hook(lambda hooks: hooks.after_model_call(AssistantMessage(text=""))),
    "list_tools": _listing,
    "prompt": _prompt,
    "responder": _responder,
    "output": _output,
    "headers": _headers,
    "model": _model,
}


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("place", PLACES)
async def test_what_user_code_raises_is_told_once(place: str, raised: str) -> None:
    """An exception of user code is reported once, and causes no end of the worker, hang or retry."""

    def fail() -> str:
        raise RAISED[raised]

    async with asyncio.timeout(30):
        told = await PLACES[place](fail)

    # A coroutine or an async generator turns a StopIteration into a RuntimeError.
    kinds = {type(RAISED[raised]).__name__, *(["RuntimeError"] if raised == "stop" else [])}
    assert any(kind in told for kind in kinds)


async def test_the_model_reads_the_inner_errors_of_a_group() -> None:
    """The model reads the only error of a group, or each of several."""

    async def look_up(city: str) -> None:
        raise ValueError(f"there is no {city}")

    @tool
    async def compare(cities: list[str]) -> None:
        """Compare cities."""
        async with asyncio.TaskGroup() as group:
            for city in cities:
                group.create_task(look_up(city))

    rig = ToolRig(compare)
    one = await rig.run(rig.call("compare", '{"cities": ["Rome"]}'))
    two = await rig.run(rig.call("compare", '{"cities": ["Rome", "Bonn"]}', call_id="other"))

    assert one.content == "ValueError: there is no Rome"
    assert one.raised_at.endswith(" look_up")
    assert two.content.splitlines()[1:] == [
        "- ValueError: there is no Rome",
        "- ValueError: there is no Bonn",
    ]


@pytest.mark.parametrize("raised", RAISED)
async def test_a_policy_that_fails_asks(raised: str) -> None:
    """A policy that fails asks for an approval; the call does not run without one."""

    def fail(_: object) -> bool:
        raise RAISED[raised]

    @tool(needs_approval=fail)
    def pay() -> str:
        """Pay."""
        return "paid"

    rig = ToolRig(pay)
    assert (await rig.ask(rig.call("pay"))).purpose == "approval"


@pytest.mark.parametrize("raised", RAISED)
async def test_what_is_let_go_of_may_fail(raised: str) -> None:
    """A failing close of a call, a provider or a plugin is logged, and the next one is closed."""

    def fail() -> str:
        raise RAISED[raised]

    async def abandon(context: ToolContext) -> None:
        fail()

    async def act(arguments: JsonValue, context: ToolContext) -> str:
        return f"{arguments}"

    class Closing(Plugin):
        async def close(self) -> None:
            fail()

    rig = ToolRig(Tool(act, "act", "Act.", schema={}, abandoned=abandon))
    call = rig.call("act").model_copy(update={"abandoned": True})
    clients = Clients()
    FAILING[:] = [fail]
    clients.of(Provider("own", kind=f"{__name__}:Failing", base_url="http://own"))

    with capture_logs() as logs:
        assert (await rig.run(call)).outcome == "rejected"
        await clients.aclose()
        async with closing_plugins(AgentRegistry([agent(Closing())])):
            pass

    told = [(line["event"], line["error_type"]) for line in logs if line["log_level"] == "warning"]
    kind = "RuntimeError" if raised == "stop" else type(RAISED[raised]).__name__
    assert told == [
        ("an abandoned call was not let go of", kind),
        ("model not closed", kind),
        ("plugin not closed", kind),
    ]


def test_the_module_of_a_provider_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a provider's module at the start of the worker is reported in a line."""
    (tmp_path / "panicking_models.py").write_text("class Panic(BaseException): ...\nraise Panic")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StartError, match=r"cannot load 'panicking_models:make' \(Panic\)"):
        make_model(Provider("own", kind="panicking_models:make", base_url="http://own"))
