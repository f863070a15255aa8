"""`everloop send` and `everloop chat` in a terminal: their output, and their keys."""

import asyncio
import json
import re
import stat
from pathlib import Path

import pytest

from everloop.client import Client, TaskState
from tests.acceptance.cli.terminal import ALT_ENTER, CTRL_C, CTRL_D, DOWN, ENTER, ESCAPE, Shell
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Reply, tool_call

COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;5)[0-9;]*m")


async def test_an_approval_is_given_by_arrow_keys(service: Service, shell: Shell, ledger: Path) -> None:
    """The exact call is shown, without a preselected answer; the model reads the reason for a no."""
    wipe = call("wipe", {"disk": "sda", "ledger": str(ledger)})
    service.script([Reply([wipe]), Reply(["Wiped."])])
    async with shell.terminal("send", "Wipe.", "--agent", "desk") as terminal:
        await terminal.until('"disk": "sda"')
        await terminal.until("arrow keys")
        await terminal.press(DOWN, ENTER)
        await terminal.until("Wiped.")
        assert await terminal.ended() == 0
    service.script([Reply([wipe]), Reply(["Not wiped."])])
    async with shell.terminal("send", "Wipe.", "--agent", "desk") as terminal:
        await terminal.until("arrow keys")
        await terminal.press(DOWN, DOWN, DOWN, ENTER)
        await terminal.until("why: ")
        terminal.type("not mine" + ENTER)
        await terminal.until("Not wiped.")
        assert await terminal.ended() == 0
    assert "not mine" in service.model.requests[-1].tool_results[-1]
    assert ledger.read_text() == '"sda"\n'


@pytest.mark.slow
async def test_a_form_asks_field_by_field_and_says_what_does_not_fit(
    service: Service, shell: Shell, ledger: Path
) -> None:
    service.script([Reply([call("book", {"kind": "data", "ledger": str(ledger)})]), Reply(["Booked."])])
    async with shell.terminal("send", "Book.", "--agent", "desk", columns=40) as terminal:
        await terminal.until("adults: ")
        terminal.type("99" + ENTER)
        await terminal.until("maximum")
        await terminal.until("adults: ")
        terminal.type("2" + ENTER)
        await terminal.until("near_window")
        await terminal.press("ja", ENTER)
        await terminal.until("send it")
        await terminal.press(ENTER)
        await terminal.until("nothing is chosen yet")
        await terminal.press("y", ENTER)
        await terminal.until("Booked.")
        assert await terminal.ended() == 0
    assert json.loads(ledger.read_text()) == [{"adults": 2, "near_window": True}, "user"]


@pytest.mark.slow
async def test_a_secret_is_shown_nowhere(service: Service, shell: Shell, tmp_path: Path) -> None:
    ledger = tmp_path / "vault"
    (tmp_path / "vault.gate").touch()
    service.script([Reply([call("open_vault", {"ledger": str(ledger)})]), Reply(["Opened."])])
    async with shell.terminal("send", "Open.", "--agent", "desk") as terminal:
        await terminal.until("token of the vault")
        await terminal.until("> ")
        await terminal.until("not shown")
        terminal.type("geheim-4711" + ENTER)
        await terminal.until("Opened.")
        assert await terminal.ended() == 0
    assert "4711" not in terminal.raw


async def test_ctrl_c_leaves_a_task_and_twice_cancels_it(service: Service, shell: Shell) -> None:
    """Once: 130, the task goes on, and the command to return is shown. Twice: 5, and it is canceled."""
    gate = asyncio.Event()
    service.script([Reply(["It begins ", gate, "and ends."])])
    async with shell.terminal("send", "Go.", columns=200) as terminal:
        await terminal.until("begins")
        terminal.type(CTRL_C)
        assert await terminal.ended() == 130
    task = re.search(r"everloop tasks watch (\S+) ", terminal.text)
    assert task
    gate.set()
    watched = await shell.run("tasks", "watch", task[1])
    assert (watched.code, watched.out) == (0, "It begins and ends.\n")
    service.script([Reply(["It begins ", asyncio.Event(), "and ends."])])
    async with shell.terminal("send", "Go.") as terminal:
        await terminal.until("begins")
        terminal.type(CTRL_C)
        await terminal.until("Ctrl-C again cancels")
        terminal.type(CTRL_C)
        assert await terminal.ended() == 5
    assert "✗ canceled" in terminal.text


@pytest.mark.slow
async def test_a_question_that_somebody_else_answers_asks_no_more(
    service: Service, shell: Shell, ledger: Path
) -> None:
    service.script([Reply([call("wipe", {"disk": "sda", "ledger": str(ledger)})]), Reply(["Wiped."])])
    async with shell.terminal("send", "Wipe.", "--agent", "desk") as terminal:
        await terminal.until("arrow keys")
        async with Client(service.gateway.url, agent="desk") as client:
            (waiting,) = [one async for one in client.tasks(state=TaskState.INPUT_REQUIRED, limit=1)]
            await client.approve(waiting.id)
        await terminal.until("it has been answered")
        await terminal.until("Wiped.")
        assert await terminal.ended() == 0


@pytest.mark.slow
async def test_an_artifact_is_offered_and_saved(service: Service, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    big = {"artifact_id": "big", "megabytes": 1, "gate": str(tmp_path / "gate")}
    service.script([Reply([call("write_big", big)]), Reply(["Written."])])
    async with shell.terminal("send", "Write.", "--agent", "artifacts") as terminal:
        await terminal.until("in this folder")
        await terminal.press("yes", ENTER)
        assert await terminal.ended() == 0
    assert (tmp_path / "big.bin").stat().st_size == 2**20


async def test_a_narrow_terminal_has_whole_words_and_no_colour_if_none_is_wanted(
    service: Service, shell: Shell
) -> None:
    """The answer breaks between words; lines about calls are cut to the width."""
    words = "internationalisation " * 20
    service.script(
        [Reply([tool_call("report", '{"words": "a much longer list of words than fits"}')]), Reply([words])]
    )
    async with shell.terminal("send", "Go.", columns=40, NO_COLOR="1") as terminal:
        assert await terminal.ended() == 0
        await terminal.until("context ")
    lines = terminal.text.replace("\r", "").split("\n")
    assert not COLOUR.search(terminal.raw)
    assert [line.strip() for line in lines].count("internationalisation") == 20
    pieces = re.split(
        r"[\r\n]", ESCAPE.sub("\n", terminal.raw)
    )  # the line of a running call is overwritten again and again
    assert max(len(piece) for piece in pieces if "report(" in piece) <= 40


@pytest.mark.slow
async def test_a_conversation_goes_on(service: Service, shell: Shell, tmp_path: Path) -> None:
    """Lines, files, another agent, another try; the input history is readable for its user alone."""
    (tmp_path / "notes.txt").write_text("eins zwei")
    service.script([Reply(["First."]), Reply(["Second."]), Reply(["Third."])])
    async with shell.terminal("chat") as terminal:
        await terminal.until("acceptance> ")
        terminal.type("one" + ALT_ENTER + "two" + ENTER)
        await terminal.until("First.")
        await terminal.until("acceptance> ")
        terminal.type("/file notes.txt" + ENTER)
        await terminal.until("goes with the next message")
        terminal.type("/agent desk" + ENTER)
        await terminal.until("desk +1 file> ")
        terminal.type("And this?" + ENTER)
        await terminal.until("Second.")
        await terminal.until("desk> ")
        terminal.type("/retry" + ENTER)
        await terminal.until("Third.")
        await terminal.until("desk> ")
        terminal.type("/nonsense" + ENTER)
        await terminal.until("there is no /nonsense")
        terminal.type(CTRL_D)
        assert await terminal.ended() == 0
    assert "one\ntwo" in str(service.model.requests[0].messages).replace("\\n", "\n")
    context = re.search(r"--context (\S+)", terminal.text)
    assert context
    async with Client(service.gateway.url, agent="desk") as client:
        assert len([each async for each in client.tasks(context_id=context[1])]) == 2
    history = tmp_path / "state" / "everloop" / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "And this?" in history.read_text()


@pytest.mark.slow
async def test_chat_takes_a_terminal(shell: Shell) -> None:
    ran = await shell.run("chat")
    assert (ran.code, ran.err) == (2, "everloop: chat needs a terminal; `everloop send` works in pipes\n")


async def test_a_gateway_that_is_killed_is_waited_for(service: Service, shell: Shell) -> None:
    """SIGKILL in the middle of the answer: it goes on at the next gateway of that address, without a gap."""
    gate = asyncio.Event()
    service.script([Reply(["The first half, ", gate, "the second."])])
    gateway = await service.everloop.add_gateway()
    async with shell.terminal("send", "Go.", EVERLOOP_PROFILE=gateway.url) as terminal:
        await terminal.until("The first half,")
        gateway.process.kill()
        gateway.process.start()
        gate.set()
        assert await terminal.ended() == 0
        await terminal.until("the second.")
    gateway.process.stop()
    assert "✓ completed" in terminal.text
