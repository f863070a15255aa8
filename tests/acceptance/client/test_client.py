"""The client with an Everloop: answers, tool calls, questions, files, and lost connections."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from everloop.client import (
    ArtifactChanged,
    Client,
    Done,
    Event,
    InvalidError,
    NotFoundError,
    OpenQuestion,
    Part,
    Progress,
    Question,
    Reconnecting,
    StatusChanged,
    TaskNotCompletedError,
    TaskState,
    TextDelta,
    Thought,
    ToolCallEnded,
    ToolCallStarted,
    UnreachableError,
    WaitTimeoutError,
    fold,
)
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.tasks import TaskState as ServersState
from tests.acceptance.client.relay import CuttingRelay
from tests.support.rigs.deployment import Service
from tests.support.rigs.operator import until
from tests.support.rigs.people import call
from tests.support.servers.relay import running_relay
from tests.support.servers.scripted_openai import Reasoning, Reply, tool_call

REPORT = [
    Reply([Reasoning("Let me "), Reasoning("think."), tool_call("report", '{"words": "one two"}')]),
    Reply(["The ", "answer."]),
]


def said(events: Sequence[Event]) -> str:
    """Return the answer as the concatenation of its pieces."""
    text = ""
    for event in events:
        if isinstance(event, TextDelta):
            text = event.text if event.starts_over else text + event.text
    return text


def gist(events: Sequence[Event]) -> list[object]:
    """Return the events, without differences in the cuts between pieces."""
    found: list[object] = []
    for event in events:
        match event:
            case StatusChanged():
                found.append((event.state, event.text))
            case ToolCallStarted():
                found.append(("started", event.call_id, event.arguments))
            case ToolCallEnded():
                found.append(("ended", event.call_id, event.call.result))
            case Progress():
                found.append(("progress", event.text, event.tool))
            case _:
                pass
    return found


async def test_a_stream_tells_what_happens_and_ends_with_the_result(service: Service) -> None:
    """Status, thoughts, tool calls with arguments and results, progress, the answer, usage."""
    service.script(REPORT)

    async with Client(service.gateway.url) as client:
        events = [event async for event in client.stream("Report.", context_id="talk-1")]
        done = events[-1]
        assert isinstance(done, Done)
        result = done.result
        read = await client.task(result.id)
        (listed,) = [task async for task in client.tasks(context_id="talk-1")]
        named = await client.agents()

    assert said(events) == result.text == read.text == "The answer."
    assert "".join(event.text for event in events if isinstance(event, Thought)) == "Let me think."
    (tool,) = result.tool_calls
    assert (tool.name, tool.arguments, tool.result, tool.is_error) == (
        "report",
        {"words": "one two"},
        "reported",
        False,
    )
    assert gist(events) == [
        (TaskState.SUBMITTED, ""),
        (TaskState.WORKING, ""),
        ("started", tool.id, {"words": "one two"}),
        ("progress", "one", "report"),
        ("progress", "two", "report"),
        ("ended", tool.id, "reported"),
        (TaskState.COMPLETED, ""),
    ]
    assert result.usage
    assert (result.usage.input_tokens, result.usage.output_tokens) == (20, 10)
    assert result.is_done
    assert result.raise_for_state() is result
    assert result.events == tuple(events[:-1])
    assert (read.tool_calls, read.usage, read.state) == (result.tool_calls, result.usage, result.state)
    assert (listed.id, listed.context_id, listed.state) == (result.id, "talk-1", result.state)
    assert [agent.id for agent in named][:3] == ["acceptance", "desk", "artifacts"]
    assert named[1].url == service.at("desk") + "/"


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_stream_whose_connections_are_cut_loses_nothing_and_repeats_nothing(
    service: Service, seed: int
) -> None:
    """Wherever the bytes end: the client goes on after the last event, and reports the reconnection."""
    service.script(REPORT)
    cuts = Random(seed)  # noqa: S311 -- the same places each time

    async with (
        running_relay(CuttingRelay(urlsplit(service.gateway.url).port or 0)) as relay,
        Client(relay.url) as client,
    ):
        await client.send("Report.")
        service.script(REPORT)
        relay.budgets = [cuts.randint(1500, 4000) for _ in range(4)]
        events = [event async for event in client.stream("Report.")]
        service.script(REPORT)
        whole = [event async for event in client.stream("Report.")]

    assert relay.cuts >= 2
    lost = len([event for event in events if isinstance(event, Reconnecting)])
    assert lost in {relay.cuts, relay.cuts - 1}  # the last cut may be behind the last event
    assert said(events) == said(whole) == "The answer."
    assert gist(events) == gist(whole)
    assert isinstance(events[-1], Done)
    assert (
        events[-1].result.tool_calls == whole[-1].result.tool_calls if isinstance(whole[-1], Done) else False
    )


async def test_a_gateway_that_is_killed_is_waited_for(service: Service) -> None:
    """SIGKILL in the middle of the answer: the rest comes from the next gateway at that address."""
    gate = asyncio.Event()
    service.script([Reply(["The first ", "half, ", gate, "the second."])])
    gateway = await service.everloop.add_gateway()
    events: list[Event] = []

    async with Client(gateway.url) as client:
        async for event in client.stream("Go."):
            events.append(event)
            if isinstance(event, TextDelta) and not gate.is_set():
                gateway.process.kill()
                gateway.process.start()
                gate.set()
    gateway.process.stop()

    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "The first half, the second."
    assert [event for event in events if isinstance(event, Reconnecting)]
    assert isinstance(events[-1], Done)
    assert events[-1].result.state is TaskState.COMPLETED


async def test_a_message_whose_answer_never_came_is_sent_again_and_counts_once(service: Service) -> None:
    """The client cannot tell if it arrived: the same message finds its task."""
    service.script(REPORT)

    async with (
        running_relay(CuttingRelay(urlsplit(service.gateway.url).port or 0)) as relay,
        Client(relay.url) as client,
    ):
        await client.card()
        relay.budgets = [0, 0]
        result = await client.send("Report.", context_id="once")
        detached = await client.send("Report.", context_id="once", message_id="m-1", detach=True)
        again = await client.send("Report.", context_id="once", message_id="m-1")
        tasks = [task async for task in client.tasks(context_id="once")]

    assert relay.cuts == 2
    assert result.text == "The answer."
    assert not detached.is_done
    assert again.id == detached.id
    assert sorted(task.id for task in tasks) == sorted({result.id, again.id})


async def test_who_watches_goes_on_behind_an_event(service: Service) -> None:
    """Another client, later, gets exactly the following events; of a task that has ended, its result."""
    service.script(REPORT)

    async with Client(service.gateway.url) as client:
        events = [event async for event in client.stream("Report.")]
        place = next(place for place, event in enumerate(events) if isinstance(event, ToolCallStarted))
        after = [event async for event in client.watch(events[0].task_id, after=events[place].event_id)]
        ended = [event async for event in client.watch(events[0].task_id)]

    assert gist(after) == gist(events[place + 1 :])
    assert said(after) == said(ended) == "The answer."
    for last in (after[-1], ended[-1]):
        assert isinstance(last, Done)
        assert [each.result for each in last.result.tool_calls] == ["reported"]


async def test_questions_are_answered_in_place(service: Service, ledger: Path) -> None:
    """By kind: text, an option, data that fit a schema, and a yes; an invalid answer is refused."""
    path = str(ledger)
    asked = [
        call("book", {"kind": "selection", "ledger": path}),
        call("book", {"kind": "data", "ledger": path}, 1),
        call("wipe", {"disk": "sda", "ledger": path}, 2),
    ]
    service.script([Reply(asked), Reply(["Done."])])

    async with Client(service.gateway.url, agent="desk") as client:
        result = await client.send("Go.")
        with pytest.raises(TaskNotCompletedError, match="input-required: "):
            result.raise_for_state()
        watched = asyncio.create_task(_questions_of(client, result.id, 3))
        questions = {question.kind: question for question in await watched}
        waiting = await until(lambda: _waiting(client, result.id), does=lambda listed: len(listed) == 3)
        with pytest.raises(InvalidError, match="18:00"):
            await client.answer(result.id, "19:00", question_id=questions["selection"].id)
        await client.answer(result.id, "20:00", question_id=questions["selection"].id)
        seats = {"adults": 2, "near_window": True}
        await client.answer(result.id, seats, question_id=questions["data"].id)
        end = await client.approve(result.id, questions["confirmation"].id, approved=False, note="not mine")

    assert questions["selection"].options == ("18:00", "20:00")
    assert waiting.keys() == {question.id for question in questions.values()}
    assert waiting[questions["selection"].id].answer_schema == {"enum": ["18:00", "20:00"]}
    assert {each.agent for each in waiting.values()} == {"desk"}
    assert questions["data"].json_schema["required"] == ["adults"]
    assert (questions["confirmation"].tool, questions["confirmation"].purpose) == ("wipe", "approval")
    assert end.text == "Done."
    assert [one.is_error for one in end.tool_calls] == [False, False, True]
    assert "not mine" in str(end.tool_calls[2].result)


async def test_who_comes_later_is_told_of_the_calls_that_have_ended(service: Service, ledger: Path) -> None:
    """A task snapshot has no calls, so a client that watches or answers it would miss some."""
    wipes = [call("wipe", {"disk": disk, "ledger": str(ledger)}) for disk in ("sda", "sdb")]
    service.script([*(Reply([wipe]) for wipe in wipes), Reply(["Done."])])

    async with Client(service.gateway.url, agent="desk") as client:
        asked = await client.approve((await client.send("Wipe all.")).id)
        async with aclosing(client.watch(asked.id)) as events:
            seen = [event async for event in _until_question(events)]
        answered = [event async for event in client.stream("yes", task_id=asked.id)]

    done = answered[-1]
    assert isinstance(done, Done)
    assert [event.call.result for event in seen if isinstance(event, ToolCallEnded)] == ["wiped sda"]
    assert [event.call for event in answered if isinstance(event, ToolCallEnded)] == [*done.result.tool_calls]
    assert [tool.result for tool in done.result.tool_calls] == ["wiped sda", "wiped sdb"]


async def _until_question(events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
    async for event in events:
        yield event
        if isinstance(event, Question):
            return


async def _waiting(client: Client, task_id: str) -> dict[str, OpenQuestion]:
    """Return the listed questions of a task, by id; the list follows the stream."""
    return {each.question_id: each async for each in client.questions() if each.task_id == task_id}


async def _questions_of(client: Client, task_id: str, count: int) -> list[Question]:
    found: dict[str, Question] = {}
    async for event in client.watch(task_id):
        if isinstance(event, Question):
            found[event.id] = event
            if len(found) == count:
                break
    return list(found.values())


async def test_files_go_with_messages_and_come_back_as_streams(service: Service, tmp_path: Path) -> None:
    """From a path or from bytes.

    A large artifact goes to a file piece by piece, and appears when complete.
    """
    sent = tmp_path / "table.csv"
    sent.write_text("a,b\n1,2\n")
    (tmp_path / "gate").touch()
    big = {"artifact_id": "big", "megabytes": 3, "gate": str(tmp_path / "gate")}
    service.script([Reply([call("write_big", big)]), Reply(["Written."])])

    async with Client(service.gateway.url, agent="artifacts") as client:
        files = [sent, Part(raw=b"\x00\x01", filename="two.bin", media_type="application/x-two")]
        result = await client.send("Write.", files=files, context_id="desk/1")
        (artifact,) = [one for one in await client.artifacts("desk/1") if one.id == "big"]
        saved = await client.save(artifact.parts[0], tmp_path)
        stored = await client.stored_artifacts("desk/1")
        read = [await client.read(part.part) for one in stored for part in one.parts if one.is_input]
        with pytest.raises(NotFoundError, match="no artifact 'none'"):
            await client.artifact("desk/1", "none")
        with pytest.raises(InvalidError, match="cannot be written"):
            await client.save(artifact.parts[0], tmp_path / "no" / "such")

    assert [event.artifact.id for event in result.events if isinstance(event, ArtifactChanged)][-1] == "big"
    assert sorted(read) == [b"\x00\x01", b"a,b\n1,2\n"]
    assert [(one.parts[0].size, one.status) for one in stored if not one.is_input] == [
        (3 * 2**20, "complete")
    ]
    assert (saved.name, saved.stat().st_size) == ("big.bin", 3 * 2**20)
    assert not [*tmp_path.glob(".*.part")]


async def test_an_answer_may_be_data(service: Service) -> None:
    """Whole numbers stay whole."""
    service.script([Reply(['{"total": 2, "words": ["a", "b"]}'])])

    async with Client(service.at("counter")) as client:
        result = await client.send("Count.")

    assert result.data == {"total": 2, "words": ["a", "b"]}
    assert isinstance(result.data, dict)
    assert isinstance(result.data["total"], int)


async def test_what_cannot_be_done_is_said_in_words(service: Service) -> None:
    """Wrong ids, addresses, states; a missing server; a timeout while the task goes on."""
    gate = asyncio.Event()
    service.script([Reply(["So far", gate, "."])])
    url = service.gateway.url

    async with Client(url) as client:
        with pytest.raises(NotFoundError) as unknown:
            await client.task("none")
        with pytest.raises(NotFoundError):
            _ = [event async for event in client.watch("none")]
        with pytest.raises(InvalidError, match="no state 'done'; there are"):
            _ = [task async for task in client.tasks(state="done")]
        with pytest.raises(InvalidError, match="the message is empty"):
            await client.send()
        with pytest.raises(InvalidError, match=r"none\.txt cannot be read"):
            await client.send("x", files=["/none.txt"])
        canceled = await client.cancel(await until(lambda: _late(client)))  # a busy server answers too late
        gate.set()
    async with Client("http://127.0.0.1:9") as nobody:
        with pytest.raises(UnreachableError, match=r"no answer from .*is the gateway running"):
            await nobody.send("x")
    async with Client(url, agent="nobody") as stranger:
        with pytest.raises(NotFoundError, match=r"there is no agent at .*/agents/nobody/"):
            await stranger.send("x")

    assert unknown.value.reason == "TASK_NOT_FOUND"
    assert canceled.state is TaskState.CANCELED
    with pytest.raises(InvalidError, match="no address"):
        Client("localhost:8080")


async def _late(client: Client) -> str:
    """Send a message, the same each time, until the timeout; return the id of its task, if there is one."""
    with pytest.raises(WaitTimeoutError) as late:
        await client.send("Wait.", message_id="late", timeout=0.5)
    return late.value.result.id


@pytest.mark.parametrize(
    ("url", "agent"),
    [
        ("{gateway}", "desk"),
        ("{gateway}/", "desk"),
        ("{gateway}/agents/desk", None),
        ("{gateway}/agents/lead/", "desk"),
        ("{gateway}/agents/desk/.well-known/agent-card.json", None),
    ],
)
async def test_an_agent_is_named_by_its_id_or_by_an_address(
    service: Service, url: str, agent: str | None
) -> None:
    async with Client(url.format(gateway=service.gateway.url), agent=agent) as client:
        assert (await client.card()).supported_interfaces[0].url == service.at("desk") + "/"
        assert len(await client.agents()) > 3


def test_the_client_calls_things_what_the_server_does() -> None:
    """The client imports no module of the server, so this test compares their words."""
    assert fold.RESPONSE == RESPONSE_ARTIFACT
    assert {*ServersState} | {"unspecified"} == {*TaskState}


def test_the_client_loads_neither_a_gateway_nor_a_worker() -> None:
    """A user with a remote gateway needs neither."""
    script = (
        "import sys, everloop.client; print([m for m in sys.modules if m.split('.')[0] in "
        "{'temporalio', 'redis', 'uvicorn', 'openai', 'boto3', 'mcp'} or m.startswith('everloop.') and not "
        "m.startswith(('everloop.client', 'everloop.version', 'everloop.workflows.contract.http_extension'))"
        " and m not in ('everloop.lazy', 'everloop.workflows', 'everloop.workflows.contract')])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert loaded.stdout == "[]\n"


async def test_a_server_on_this_machine_is_reached_without_a_proxy(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies of the environment are for other hosts."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with Client(service.gateway.url) as client:
        assert await client.agents()
