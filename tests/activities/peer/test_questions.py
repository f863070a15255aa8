"""What a peer asks reaches our user, and the answer finds its way back, once."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from pydantic import JsonValue

from everloop.workflows.contract.questions import QuestionKind
from tests.support.rigs.peer_rig import PeerRig, Settings, ann
from tests.support.servers.peer_agent import Town
from tests.support.servers.peer_server import running_peer


@pytest_asyncio.fixture(params=["1.0", "0.3"])
async def town(request: pytest.FixtureRequest) -> AsyncGenerator[Town]:
    async with running_peer(version=request.param) as running:
        yield running


async def test_question_after_question(town: Town) -> None:
    """The same question again is another one; each answer reaches the peer's one task, once."""
    rig = PeerRig(ann(town))
    for answer in ("red", "blue"):
        rig.answer(await rig.ask("ask twice"), answer)
    result = await rig.run("ask twice")
    assert result.startswith("took blue\n")
    assert [message.parts[0].text for message in town.messages] == ["ask twice", "red", "blue"]
    assert len({message.task_id for message in town.messages[1:]}) == 1
    assert len(set(town.message_ids)) == 3


async def test_a_question_is_asked_again_by_the_next_attempt(town: Town) -> None:
    """If the worker died with it, nothing is lost and the peer is not asked twice."""
    rig = PeerRig(ann(town))
    assert await rig.ask("ask once") == await rig.ask("ask once")
    assert len(town.messages) == 1


@pytest.mark.parametrize("remembers", ["all", "the task", "the question"])
async def test_an_answer_that_was_sent_is_not_sent_again(town: Town, remembers: str) -> None:
    """Whatever the worker that died had time to keep."""
    rig = PeerRig(ann(town))
    rig.answer(await rig.ask("ask twice"), "red")
    asked = rig.kept
    question = await rig.ask("ask twice")
    assert isinstance(rig.kept, dict)
    if remembers != "all":
        rig.kept = {"task": rig.kept["task"]} if remembers == "the task" else asked
    again = await rig.ask("ask twice")
    assert again == question
    assert len(town.messages) == 2


async def test_an_answer_that_comes_too_late(town: Town) -> None:
    """Somebody else has answered the peer; what came of that is the result."""
    rig = PeerRig(ann(town))
    question = await rig.ask("ask once")
    kept = rig.kept
    rig.answer(question, "red")
    await rig.run("ask once")
    rig.kept, rig.answers = kept, []
    rig.answer(question, "blue")
    assert (await rig.run("ask once")).startswith("took red\n")
    assert len(town.messages) == 2


@pytest.mark.parametrize(("answer", "sent"), [("k3y-to-all", "k3y-to-all"), ({"key": 1}, "")])
async def test_a_secret_that_the_peer_wants(town: Town, answer: JsonValue, sent: str) -> None:
    """It is asked for as one, and handed on as the answer; nothing of it is kept."""
    rig = PeerRig(ann(town))
    question = await rig.ask("auth")
    rig.answer(question, answer)
    result = await rig.run("auth")
    assert (question.kind, question.text) == (QuestionKind.AUTH, "The key, please.")
    assert town.messages[1].parts[0].text == sent
    assert result.startswith("took")
    assert "k3y" not in str(rig.kept)


async def test_a_peer_that_wants_to_know_who_asks(town: Town) -> None:
    """The user is asked for a token, and again if it is not accepted; it goes with every request."""
    town.wants = "t0ken-of-ann"
    rig = PeerRig(ann(town, Settings(token="ann-token")))
    first = await rig.ask("say t0ken-of-ann")
    rig.answer(first, "wrong")
    second = await rig.ask("say t0ken-of-ann")
    rig.answer(second, "t0ken-of-ann")
    result = await rig.run("say t0ken-of-ann")
    assert (first.kind, first.secret_name) == (QuestionKind.AUTH, "ann-token")
    assert "wants to know who asks" in first.text
    assert "did not accept the token" in second.text
    assert result.startswith("[secret]\n")
    assert town.headers[-1]["authorization"] == "Bearer t0ken-of-ann"
    assert len(town.messages) == 1


async def test_a_peer_that_refuses_the_agents_own_credentials(town: Town) -> None:
    """The model reads who has to do something about it, and not what was refused."""
    town.wants = "t0ken-of-ann"
    rig = PeerRig(ann(town, Settings(headers={"Authorization": "Bearer wr0ng-one"})))
    failed = await rig.fail("say hi")
    assert failed.startswith(f"PeerCredentialsError: the agent at {town.url} refuses the credentials")
    assert "headers= or token=" in failed
    assert "wr0ng" not in failed


@pytest.mark.parametrize("remembers", [-1, -2], ids=["taken", "sending"])
async def test_an_answer_that_the_peer_has_not_got_to(town: Town, remembers: int) -> None:
    """The worker died when it was taken, or on its way: the question that still stands is no new one."""
    rig = PeerRig(ann(town))
    rig.answer(await rig.ask("ask slowly"), "red")
    await rig.lose(await rig.begin(town, "ask slowly"))
    rig.kept = rig.ever_kept[remembers]
    attempt = asyncio.create_task(rig.run("ask slowly"))
    await town.until_called(town.subscribe_method)
    town.gate.set()
    assert (await attempt).startswith("so far\n\ntook red\n")
    assert len(town.messages) == 2


async def test_an_answer_that_the_peer_refuses(town: Town) -> None:
    """The user hears why, and gives another one."""
    town.refuses = "red"
    rig = PeerRig(ann(town))
    rig.answer(await rig.ask("ask once"), "red")
    again = await rig.ask("ask once")
    rig.answer(again, "blue")
    assert again.text == "red is no answer\n\nWhich one?"
    assert (await rig.run("ask once")).startswith("took blue\n")
    assert len(town.messages) == 2


async def test_an_answer_to_something_else_is_not_sent(town: Town) -> None:
    """The peer asks something new by now: its question goes to the user, the old answer to nobody."""
    rig = PeerRig(ann(town))
    question = await rig.ask("ask once")
    assert isinstance(rig.kept, dict)
    rig.kept = {**rig.kept, "asked": "another"}
    rig.answer(question, "red")
    assert (await rig.ask("ask once")).text == "Which one?"
    assert len(town.messages) == 1
