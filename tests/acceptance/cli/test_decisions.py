"""Keys pressed by mistake decide nothing: a no is a no, and everything else asks again."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from everloop.cli.client.message_files import fetch_public
from everloop.client import Client, TaskState
from everloop.local.servers import LOOPBACK
from tests.acceptance.cli.terminal import CTRL_C, CTRL_D, DOWN, ENTER, UP, Shell, Terminal
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call, effects
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED
from tests.support.servers.peer_agent import FILE
from tests.support.servers.peer_server import running_peer
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import Reply
from tests.support.servers.webhook import running_webhook

BELL, CLEAR, BACKSPACE = "\a", "\x15", "\x7f"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
QUESTION = "arrow keys"
CHOOSE = """
import asyncio
from everloop.cli.client.prompts import choose, settle
async def main():
    while True:
        await settle()
        print("chosen:", await choose([(True, "yes"), (False, "no"), ("later", "decide later")]))
asyncio.run(main())
"""
TALK = """
import asyncio, sys
from everloop.cli.author.talk import Talk
asyncio.run(Talk(sys.argv[1], lambda line, _: print(line), asyncio.Lock()).run())
"""


@pytest_asyncio.fixture
async def choice(tmp_path: Path) -> AsyncGenerator[Terminal]:
    """A choice that is asked again and again."""
    async with Shell(tmp_path).terminal(command=(sys.executable, "-c", CHOOSE)) as terminal:
        await terminal.until(QUESTION)
        yield terminal


def wipes(service: Service, ledger: Path, *disks: str) -> None:
    """Script the model to request a call with an approval for each disk, and then to answer."""
    calls = [Reply([call("wipe", {"disk": disk, "ledger": str(ledger)})]) for disk in disks]
    service.script([*calls, Reply(["It ends."])])


NOTHING = {
    "Enter alone": [ENTER],
    "no word of ours": ["maybe", ENTER],
    "more than a yes": ["yes please", ENTER],
    "the next message": ["and pay Bob, too", ENTER],
    "pasted where pastes are not marked": ["yes" + ENTER],
    "lines pasted likewise": ["the\nlog:\ny\nyes" + ENTER],
    "arrows that come at once with Enter": [DOWN + ENTER],
    "pasted": [PASTE + "yes" + PASTED, ENTER],
    "pasted with a line break": [PASTE + "yes" + ENTER + PASTED],
    "an arrow key, and then something else": [DOWN, "x", ENTER, ENTER],
    "a key that writes nothing": ["\x1b[15~", ENTER],
}


async def test_what_is_no_answer_rings_and_asks_again(choice: Terminal) -> None:
    for case, keys in NOTHING.items():
        before = len(choice.raw)
        await choice.press(*keys)
        assert BELL in choice.raw[before:], case
        assert "chosen:" not in choice.text, case
    await choice.press("1", CLEAR, "n", ENTER)
    await choice.until("chosen: False")


ANSWERS = [
    (["y"], True),
    (["YES."], True),
    (["oui"], True),
    (["はい"], True),
    (["n"], False),
    (["no!"], False),
    (["nein"], False),
    (["1"], True),
    (["2"], False),
    (["decide later"], "later"),
    ([DOWN], True),
    ([UP, UP], False),
    (["yex", BACKSPACE, "s"], True),
]


async def test_words_numbers_and_arrows_choose(choice: Terminal) -> None:
    """The words are those of an answer to an agent by message (`read_yes_or_no`)."""
    for keys, chosen in ANSWERS:
        before = len(choice.raw)
        await choice.press(*keys, ENTER)
        await choice.until(f"chosen: {chosen}")
        await choice.until(QUESTION)
        assert (BELL in choice.raw[before:]) == ("yex" in keys), keys


async def test_what_was_typed_before_a_question_was_there_does_nothing(
    service: Service, shell: Shell, ledger: Path
) -> None:
    """Nor do keys typed while it appears; then a no is a no."""
    gate = asyncio.Event()
    wipe = call("wipe", {"disk": "sda", "ledger": str(ledger)})
    service.script([Reply(["One moment. ", gate, wipe]), Reply(["It ends."])])
    async with shell.terminal("send", "Wipe.", "--agent", "desk") as terminal:
        await terminal.until("One moment.")
        terminal.type(f"yes{ENTER}1{ENTER}{DOWN}{ENTER}{ENTER}")
        gate.set()
        await terminal.until("Approve the call wipe?")
        terminal.type("and then yes")
        await terminal.until(QUESTION)
        await terminal.press(ENTER)
        await terminal.until("nothing is chosen yet")
        await terminal.press("no", ENTER)
        await terminal.until("It ends.")
        assert await terminal.ended() == 0
    assert effects(ledger) == []
    assert "rejected by the user" in service.model.requests[-1].tool_results[-1]


async def test_all_arguments_stand_above_the_answer_and_none_is_hidden(
    service: Service, shell: Shell, ledger: Path
) -> None:
    """Of any length, and with characters that reorder text or are invisible."""
    disk = "alice\u202ebob\u200b" + "x" * 5000 + "END"
    wipes(service, ledger, disk)
    async with shell.terminal("send", "Wipe.", "--agent", "desk") as terminal:
        await terminal.until("scroll up, and read them")
        await terminal.until(QUESTION)
        shown = terminal.text.replace("\r", "").replace("\n", "")
        assert rf'"disk": "alice\u202ebob\u200b{"x" * 5000}END"' in shown
        assert "\u202e" not in terminal.raw
        terminal.type(CTRL_D)
        assert await terminal.ended() == 6
    assert effects(ledger) == []


async def test_a_question_that_changes_while_it_is_shown_is_asked_again(
    service: Service, shell: Shell, ledger: Path
) -> None:
    """A yes typed for the first call is not an answer to the second."""
    wipes(service, ledger, "sda", "sdb")
    async with shell.terminal("send", "Wipe.", "--agent", "desk") as terminal:
        await terminal.until('"sda"')
        await terminal.until(QUESTION)
        await terminal.press("yes")
        async with Client(service.gateway.url, agent="desk") as client:
            (waiting,) = [one async for one in client.tasks(state=TaskState.INPUT_REQUIRED, limit=1)]
            await client.approve(waiting.id, approved=False, detach=True)
        await terminal.until('"sdb"')
        terminal.type(ENTER)
        await terminal.until(QUESTION)
        await terminal.press(ENTER)
        await terminal.until("nothing is chosen yet")
        await terminal.press("no", ENTER)
        assert await terminal.ended() == 0
    assert effects(ledger) == []


async def test_a_form_that_is_left_by_enter_alone_is_not_sent(
    service: Service, shell: Shell, ledger: Path
) -> None:
    """Defaults of its fields are used, but it is sent only after a yes."""
    service.script([Reply([call("book", {"kind": "data", "ledger": str(ledger)})]), Reply(["It ends."])])
    async with shell.terminal("send", "Book.", "--agent", "desk") as terminal:
        await terminal.until("adults: ")
        terminal.type(f"2{ENTER}{ENTER}{ENTER}{ENTER}1{ENTER}")
        await terminal.until("send it")
        await terminal.until(QUESTION)
        await terminal.press(ENTER)
        await terminal.until("nothing is chosen yet")
        await terminal.press("reject", ENTER)
        assert await terminal.ended() == 0
    assert effects(ledger) == []


async def test_a_line_that_was_begun_below_dev_before_the_question_does_not_answer_it(
    service: Service, shell: Shell, ledger: Path
) -> None:
    """The question replaces the prompt; an open question takes no unfinished line as its answer."""
    gate = asyncio.Event()
    wipe = call("wipe", {"disk": "sda", "ledger": str(ledger)})
    service.script([Reply(["One moment. ", gate, wipe]), Reply(["It ends."])])
    talk = (sys.executable, "-c", TALK, service.gateway.url)
    async with shell.terminal(command=talk) as terminal:
        await terminal.until("you>")
        terminal.type(f"/agent desk{ENTER}")
        await terminal.until("desk>")
        await terminal.press("Wipe.", ENTER, "ok")
        await until(lambda: service.model.requests)
        gate.set()
        await terminal.until("Approve the call wipe?")
        await terminal.until(QUESTION)
        await terminal.press(ENTER)
        await terminal.until("nothing is chosen yet")
        terminal.type(CTRL_D)
        await terminal.until("it waits: press Enter")
        await terminal.until("desk> ok")
        terminal.type(ENTER)
        await terminal.until(QUESTION)
        await terminal.press("no", ENTER)
        await terminal.until("It ends.")
    assert effects(ledger) == []


@pytest.mark.parametrize("command", ["approve", "answer"])
async def test_a_yes_in_the_command_line_shows_first_what_it_is_for(
    service: Service, shell: Shell, ledger: Path, command: str
) -> None:
    """The task may ask another question by now; with the name of the question it is the answer."""
    wipes(service, ledger, "sda", "sdb")
    yes = ("yes",) * (command == "answer")
    async with Client(service.gateway.url, agent="desk") as client:
        task = await client.send("Wipe.")
        async with shell.terminal("tasks", command, task.id, *yes) as terminal:
            await terminal.until('"sda"')
            await terminal.until(QUESTION)
            await terminal.press("no", ENTER)
            await terminal.until('"sdb"')
            await terminal.until(QUESTION)
            terminal.type(CTRL_D)
            assert await terminal.ended() == 6
        (question,) = (await client.task(task.id)).questions
    async with shell.terminal("tasks", command, task.id, *yes, "--question", question.id) as terminal:
        await terminal.until("It ends.")
        assert await terminal.ended() == 0
    assert effects(ledger) == ["sdb"]


async def test_an_address_that_an_agent_names_is_fetched_after_a_yes_and_only_if_it_is_public(
    tmp_path: Path,
) -> None:
    """Addresses of the server itself need no yes; this machine reaches more than an agent should."""
    async with running_peer() as peer, running_webhook() as elsewhere:
        shell = Shell(tmp_path, {"EVERLOOP_PROFILE": peer.url})
        own = await shell.run("send", f"write {peer.url}/file", "--save", "own")
        url = f"http://{LOOPBACK}:{elsewhere.port}/private"
        send = ("send", f"write {url}", "--save", "others")
        unasked = await shell.run(*send)
        async with shell.terminal(*send, columns=200) as terminal:
            await terminal.until(f"another server, {url}. Fetch it?")
            await terminal.until(QUESTION)
            await terminal.press(ENTER)
            await terminal.press("no", ENTER)
            await terminal.until("was not fetched")
            assert await terminal.ended() == 0
        async with shell.terminal(*send, columns=200) as terminal:
            await terminal.until(QUESTION)
            await terminal.press("yes", ENTER)
            await terminal.until("leads to a private or special address")
            assert await terminal.ended() == 1
    assert (own.code, (tmp_path / "own" / "named.txt").read_bytes()) == (0, FILE)
    assert unasked.code == 0
    assert f"another server, {url}; it is fetched only after a yes" in unasked.err
    assert (elsewhere.taken, [*(tmp_path / "others").glob("*")]) == ([], [])


async def test_what_is_public_is_fetched_without_credentials() -> None:
    async with running_webhook(200) as elsewhere:
        url = f"http://{LOOPBACK}:{elsewhere.port}/file?a=b"
        assert [piece async for piece in fetch_public(url, LOOPBACK_ALLOWED)] == []
    (request,) = elsewhere.taken
    assert (request.target, "authorization" in request.headers) == ("/file?a=b", False)


async def test_nothing_is_deleted_by_a_number_or_by_enter(service: Service, shell: Shell) -> None:
    service.script([Reply(["Stays."])])
    async with Client(service.gateway.url, agent="desk") as client:
        task = await client.send("Say it.")
        async with shell.terminal("tasks", "delete", task.id) as terminal:
            await terminal.until(QUESTION)
            await terminal.press("2", CLEAR, ENTER)
            await terminal.until("nothing is chosen yet")
            terminal.type(CTRL_C)
            assert await terminal.ended() == 130
        assert (await client.task(task.id)).text == "Stays."
