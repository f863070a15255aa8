"""What a peer asks reaches our user, and the answer finds its way back, once."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from pydantic import JsonValue

from everloop.workflows.contract.questions import QuestionKind
from tests.support.rigs.peer_rig import PeerBench, Settings, ann
from tests.support.servers.peer_agent import Town
from tests.support.servers.peer_server import running_peer


@pytest_asyncio.fixture(params=["1.0", "0.3"])
async def town(request: pytest.FixtureRequest) -> AsyncGenerator[Town]:
    async with running_peer(version=request.param) as running:
        yield running


async def test_question_after_question(town: Town) -> None:
    """The same question again is another one; each answer reaches the peer's one task, once."""
    bench = PeerBench(ann(town))
    for answer in ("red", "blue"):
        bench.answer(await bench.ask("ask twice"), answer)

    result = await bench.run("ask twice")

    assert result.startswith("took blue\n")
    assert [message.parts[0].text for message in town.messages] == ["ask twice", "red", "blue"]
    assert len({message.task_id for message in town.messages[1:]}) == 1
    assert len(set(town.message_ids)) == 3


async def test_a_question_is_asked_again_by_the_next_attempt(town: Town) -> None:
    """If the worker died with it, nothing is lost and the peer is not asked twice."""
    bench = PeerBench(ann(town))

    assert await bench.ask("ask once") == await bench.ask("ask once")
    assert len(town.messages) == 1


@pytest.mark.parametrize("remembers", ["all", "the task", "the question"])
async def test_an_answer_that_was_sent_is_not_sent_again(town: Town, remembers: str) -> None:
    """Whatever the worker that died had time to keep."""
    bench = PeerBench(ann(town))
    bench.answer(await bench.ask("ask twice"), "red")
    asked = bench.kept
    question = await bench.ask("ask twice")
    assert isinstance(bench.kept, dict)
    if remembers != "all":
        bench.kept = {"task": bench.kept["task"]} if remembers == "the task" else asked

    again = await bench.ask("ask twice")

    assert again == question
    assert len(town.messages) == 2


async def test_an_answer_that_comes_too_late(town: Town) -> None:
    """Somebody else has answered the peer; what came of that is the result."""
    bench = PeerBench(ann(town))
    question = await bench.ask("ask once")
    kept = bench.kept
    bench.answer(question, "red")
    await bench.run("ask once")
    bench.kept, bench.answers = kept, []
    bench.answer(question, "blue")

    assert (await bench.run("ask once")).startswith("took red\n")
    assert len(town.messages) == 2


@pytest.mark.parametrize(("answer", "sent"), [("k3y-to-all", "k3y-to-all"), ({"key": 1}, "")])
async def test_a_secret_that_the_peer_wants(town: Town, answer: JsonValue, sent: str) -> None:
    """It is asked for as one, and handed on as the answer; nothing of it is kept."""
    bench = PeerBench(ann(town))
    question = await bench.ask("auth")
    bench.answer(question, answer)
    result = await bench.run("auth")

    assert (question.kind, question.text) == (QuestionKind.AUTH, "The key, please.")
    assert town.messages[1].parts[0].text == sent
    assert result.startswith("took")
    assert "k3y" not in str(bench.kept)


async def test_a_peer_that_wants_to_know_who_asks(town: Town) -> None:
    """The user is asked for a token, and again if it is not accepted; it goes with every request."""
    town.wants = "t0ken-of-ann"
    bench = PeerBench(ann(town, Settings(token="ann-token")))
    first = await bench.ask("say t0ken-of-ann")
    bench.answer(first, "wrong")
    second = await bench.ask("say t0ken-of-ann")
    bench.answer(second, "t0ken-of-ann")
    result = await bench.run("say t0ken-of-ann")

    assert (first.kind, first.secret_name) == (QuestionKind.AUTH, "ann-token")
    assert "wants to know who asks" in first.text
    assert "did not accept the token" in second.text
    assert result.startswith("[secret]\n")
    assert town.headers[-1]["authorization"] == "Bearer t0ken-of-ann"
    assert len(town.messages) == 1


async def test_a_peer_that_refuses_the_agents_own_credentials(town: Town) -> None:
    """The model reads who has to do something about it, and not what was refused."""
    town.wants = "t0ken-of-ann"
    bench = PeerBench(ann(town, Settings(headers={"Authorization": "Bearer wr0ng-one"})))

    failed = await bench.fail("say hi")

    assert failed.startswith(f"PeerCredentialsError: the agent at {town.url} refuses the credentials")
    assert "headers= or token=" in failed
    assert "wr0ng" not in failed


@pytest.mark.parametrize("remembers", [-1, -2], ids=["taken", "sending"])
async def test_an_answer_that_the_peer_has_not_got_to(town: Town, remembers: int) -> None:
    """The worker died when it was taken, or on its way: the question that still stands is no new one."""
    bench = PeerBench(ann(town))
    bench.answer(await bench.ask("ask slowly"), "red")
    await bench.lose(await bench.begin(town, "ask slowly"))
    bench.kept = bench.ever_kept[remembers]

    attempt = asyncio.create_task(bench.run("ask slowly"))
    await town.until_called(town.subscribe_method)
    town.gate.set()

    assert (await attempt).startswith("so far\n\ntook red\n")
    assert len(town.messages) == 2


async def test_an_answer_that_the_peer_refuses(town: Town) -> None:
    """The user hears why, and gives another one."""
    town.refuses = "red"
    bench = PeerBench(ann(town))
    bench.answer(await bench.ask("ask once"), "red")
    again = await bench.ask("ask once")
    bench.answer(again, "blue")

    assert again.text == "red is no answer\n\nWhich one?"
    assert (await bench.run("ask once")).startswith("took blue\n")
    assert len(town.messages) == 2


async def test_an_answer_to_something_else_is_not_sent(town: Town) -> None:
    """The peer asks something new by now: its question goes to the user, the old answer to nobody."""
    bench = PeerBench(ann(town))
    question = await bench.ask("ask once")
    assert isinstance(bench.kept, dict)
    bench.kept = {**bench.kept, "asked": "another"}
    bench.answer(question, "red")

    assert (await bench.ask("ask once")).text == "Which one?"
    assert len(town.messages) == 1
