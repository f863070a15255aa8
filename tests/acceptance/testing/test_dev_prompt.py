"""Lines to agents below `everloop dev`, and their replies."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from everloop import Agent, request_input, tool, tools
from everloop.cli.author.talk import Talk
from everloop.cli.client.question_answering import TypedAnswer, show_question
from everloop.client import Client, Question
from everloop.testing import Reply, Script, StartApp, call
from tests.support.servers.processes import run_everloop

MODEL = "openai/gpt-4.1-mini"


@tool(needs_approval=True)
def delete(name: str) -> str:
    """Delete something."""
    return f"deleted {name}"


clerk = Agent(
    id="clerk", name="Clerk", description="Deletes.", model=MODEL, plugins=[tools(delete), request_input()]
)
poet = Agent(id="poet", name="Poet", description="Writes.", model=MODEL)


class _Prompt:
    """A prompt, its output, and a person who answers questions."""

    def __init__(self, url: str) -> None:
        self.lines: list[str] = []
        self._terminal = asyncio.Lock()
        self.talk = Talk(url, lambda line, _: self.lines.append(line.strip()), self._terminal, self._ask)
        self._value: JsonValue = None

    async def _ask(
        self, client: Client, task_id: str, question: Question, say: Callable[..., None]
    ) -> TypedAnswer | None:
        assert self._terminal.locked(), "lines of the log come between"
        show_question(question, say)
        return TypedAnswer(question.id, self._value, "")

    async def answer(self, value: JsonValue) -> list[str]:
        """Send an answer and return its result."""
        self._value, before = value, len(self.lines)
        await self.talk.answer()
        await self.talk.wait()
        return self.lines[before:]

    async def say(self, line: str) -> list[str]:
        """Send a line and return its result."""
        before = len(self.lines)
        await self.talk.take(line)
        await self.talk.wait()
        return self.lines[before:]


async def test_lines_belong_to_one_conversation_and_answer_what_is_asked(everloop_app: StartApp) -> None:
    """An answer goes to the task that waits, and the next line begins another task."""
    schema: dict[str, JsonValue] = {"type": "object", "required": ["city"]}
    asks = call("request_input", kind="data", question="Which city?", schema=schema)
    script = Script(call("delete", name="all"), "It is gone.", asks, Reply("Rome.\n\nIt is."), "Yes.")
    app = await everloop_app(clerk, poet, model=script)
    prompt = _Prompt(app.url)

    assert await prompt.say("Delete it") == []
    asked = ["", "? Approve the call delete?", "{", '"name": "all"', "}"]
    assert await prompt.answer({"approved": True}) == [*asked, "It is gone."]
    await prompt.say("Which?")
    answered = await prompt.answer({"city": "Rome"})
    assert (answered[1], answered[-3:]) == ("? Which city?", ["Rome.", "", "It is."])

    told = await prompt.say("/agent baker")
    assert told == ["/agent ID: there are clerk, poet"]
    await prompt.say("/agent poet")
    assert await prompt.say("Really?") == ["Yes."]
    tasks = [task async for task in app.client_of("poet").tasks()]
    assert len({task.context_id for task in tasks}) == 1
    await prompt.say("/new")
    await prompt.talk.close()


async def test_a_line_goes_to_the_task_that_works(everloop_app: StartApp) -> None:
    """Its answer takes both in; an error is a line, and the next line is read."""
    goes_on, begun = asyncio.Event(), asyncio.Event()

    @tool
    async def look(context: str = "") -> str:
        """Look."""
        begun.set()
        await goes_on.wait()
        return "seen"

    looking = Agent(id="looking", name="Looking", description="", model=MODEL, plugins=[tools(look)])
    script = Script(call("look"), "I have seen it, and heard you.")
    app = await everloop_app(looking, model=script)
    prompt = _Prompt(app.url)

    await prompt.talk.take("Look")
    await begun.wait()
    await prompt.talk.take("And listen")
    goes_on.set()
    await prompt.talk.wait()

    assert prompt.lines == ["I have seen it, and heard you."]
    assert script.requests[-1].prompt == "And listen"
    assert (await prompt.say("/what"))[0].startswith("/agent ID")
    await prompt.talk.close()


async def test_it_says_who_calls(
    everloop_app: StartApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the key of the environment; without one it names the variable to set, and reads it again."""
    _, printed = await run_everloop({}, "keys", "add", "anna", "--file", str(tmp_path / "keys"))
    settings = {"EVERLOOP_AUTH": "api-key", "EVERLOOP_API_KEYS_FILE": str(tmp_path / "keys")}
    app = await everloop_app(poet, model=Script("A poem."), settings=settings)
    prompt = _Prompt(app.url)

    (refused,) = await prompt.say("Write")
    monkeypatch.setenv("EVERLOOP_API_KEY", printed.split()[-1])

    assert "X-API-Key: set EVERLOOP_API_KEY or EVERLOOP_TOKEN" in refused
    assert await prompt.say("Write") == ["A poem."]
    await prompt.talk.close()
