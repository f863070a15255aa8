"""Calls that wait for a secret, which reaches their tool alone."""

from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import JsonValue
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.activities.tools.secret_reader import SecretReader, SecretUnavailableError
from everloop.agents.question_exceptions import AuthRequired, InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.secrets import Secrets
from everloop.workflows.contract.messages import DataPart, TextPart, UserMessage
from everloop.workflows.contract.questions import WITHHELD, Answer, Question, QuestionKind, read_answer
from tests.support.fakes.failing import failing
from tests.support.rigs.artifacts.rig import content_of, stored
from tests.support.rigs.tool_rig import ToolRig, unkeyed
from tests.support.stores import database

SECRET = 'top"secret é'


async def test_a_secret_reaches_the_tool_and_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    """A secret reaches the tool, and is redacted in results, errors, progress and questions."""

    @tool
    async def login(how: str, context: ToolContext) -> JsonValue:
        """Log in."""
        token = await context.secret("token")
        if token is None:
            raise AuthRequired("Your token?", "token")
        await context.progress(f"with {token}")
        if how == "ask":
            raise InputRequired(f"Is {token} right?")
        if how == "fail":
            raise ValueError(f"{token} is wrong")
        return {"token": token, "length": len(str(token))}

    rig = ToolRig(login)
    question = await rig.ask(rig.call("login", '{"how": "return"}'))
    supplied = await _supply(rig, question, SECRET)
    returned = await rig.run(rig.call("login", '{"how": "return"}', supplied))
    failed = await rig.run(rig.call("login", '{"how": "fail"}', call_id="2"))
    asked = await rig.ask(rig.call("login", '{"how": "ask"}', call_id="3"))

    assert (question.kind, question.secret_name) == (QuestionKind.AUTH, "token")
    assert returned.content == '{"token":"[secret]","length":12}'
    assert failed.content == "ValueError: [secret] is wrong"
    assert asked.text == "Is [secret] right?"
    assert "top" not in capsys.readouterr().out + str(await rig.events())


async def _supply(rig: ToolRig, question: Question, secret: str, message_id: str = "m") -> Answer:
    """Supply a secret, as gateway and workflow do."""
    await rig.secrets.put(rig.task_id, message_id, secret)
    return _answer(question, message_id)


def _answer(question: Question, message_id: str) -> Answer:
    withheld = UserMessage(message_id=message_id, parts=(TextPart(text="…"),), metadata={WITHHELD: True})
    return read_answer(question, withheld)


@tool
async def login(context: ToolContext) -> JsonValue:
    """Return the length of the token."""
    token = await context.secret("token")
    if not isinstance(token, str) or len(token) < 2:
        raise AuthRequired("Your token?", "token")
    return len(token)


async def test_a_tool_reads_the_secret_that_its_task_took_for_an_answer() -> None:
    """A tool reads the secret that its task accepted, not a later one that was refused."""
    rig = ToolRig(login)
    question = await rig.ask(rig.call("login"))
    taken = await _supply(rig, question, "12345", "taken")
    await _supply(rig, question, "refused", "refused")
    assert (await rig.run(rig.call("login", "{}", taken))).content == "5"


async def test_texts_and_json_in_artifacts_tell_no_secret() -> None:
    """Text and JSON in artifacts are redacted, however they are written; bytes are not."""

    @tool
    async def write(context: ToolContext) -> str:
        """Write."""
        token, made = await context.secret("token"), context.artifacts
        said = f"with {token}"
        async with made.open_file("opened") as file:
            await file.write(said)
        await made.write_file("whole", said, name=said, description=said, filename=said)
        await made.write_file("pieces", [said])
        await made.write_data("data", {"a": [said]})
        await made.write_rows("rows", [{"a": said}])
        part = TextPart(text=said, filename=said)
        await made.create("parts", [part], name=said, description=said, complete=False)
        await made.append("parts", [DataPart(data={said: 1})])
        await made.replace_part("parts", 0, part)
        await made.write_file("bytes", said.encode())
        return ""

    rig = ToolRig(write)
    await rig.supply("token", SECRET)
    result = await rig.run(rig.call("write"))

    assert result.outcome == "ok", result.content
    written = [await content_of(rig, each) for each in ("opened", "whole", "pieces", "data", "rows")]
    written += [await content_of(rig, "parts", index) for index in (0, 1)]
    assert [content.count(b"[secret]") for content in written] == [1] * 7
    for made in [await stored(rig, each) for each in ("whole", "parts")]:
        assert (made.name, made.description, made.parts[0].filename) == ("with [secret]",) * 3
    assert await content_of(rig, "bytes") == f"with {SECRET}".encode()
    of_bytes = [event for event in await rig.events() if getattr(event, "artifact_id", "") == "bytes"]
    assert "top" not in str([event for event in await rig.events() if event not in of_bytes])


async def test_the_last_answer_to_a_call_brings_its_secret() -> None:
    """The last answer to a call has its secret.

    The tool asks until it is right, and a repeated answer changes nothing.
    """
    rig = ToolRig(login)
    question = await rig.ask(rig.call("login"))
    wrong = await _supply(rig, question, "1", "wrong")
    again = await rig.ask(rig.call("login", "{}", wrong))
    right = await _supply(rig, again, "12345", "right")
    results = [await rig.run(rig.call("login", "{}", wrong, right)) for _ in range(2)]
    assert unkeyed(again.id) == "call.1"
    assert [result.content for result in results] == ["5", "5"]
    assert await rig.secrets.get(rig.task_id, "token") == "12345"


async def test_a_secret_that_cannot_be_taken_in_leaves_the_call_unclaimed() -> None:
    """If its secret cannot be read, a call is not claimed, so that the next attempt runs the tool."""
    rig = ToolRig(login, secrets=failing(Secrets(database()), "accept", times=1))
    question = await rig.ask(rig.call("login"))
    answer = await _supply(rig, question, "12345")
    with pytest.raises(RedisConnectionError):
        await rig.run(rig.call("login", "{}", answer))
    assert (await rig.run(rig.call("login", "{}", answer))).content == "5"


async def test_no_part_of_a_question_tells_a_secret() -> None:
    """Options, schema and default of a question are redacted."""

    @tool
    async def choose(kind: str, context: ToolContext) -> None:
        """Ask with the secret."""
        token, number = f"my {await context.secret('token')}", await context.secret("number")
        later = timedelta(hours=1)
        if kind == "options":
            raise InputRequired("Which?", "selection", options=[token, "b"], timeout=later, default=token)
        schema: dict[str, JsonValue] = {"required": [token], "properties": {token: {"const": [1, number]}}}
        raise InputRequired("Which?", "data", schema=schema)

    rig = ToolRig(choose)
    for name, secret in (("token", SECRET), ("number", 123456)):
        await rig.supply(name, secret)

    chosen = await rig.ask(rig.call("choose", '{"kind": "options"}'))
    filled = await rig.ask(rig.call("choose", '{"kind": "schema"}'))

    assert (chosen.options, chosen.default) == (("my [secret]", "b"), "my [secret]")
    assert filled.json_schema == {
        "required": ["my [secret]"],
        "properties": {"my [secret]": {"const": [1, "[secret]"]}},
    }


async def test_an_outage_while_a_tool_reads_its_secret_is_waited_out() -> None:
    """A tool that reads its secret waits for a short outage, which is not its failure."""
    rig = ToolRig(login, secrets=failing(Secrets(database()), "get", times=1))
    await rig.supply("token", "12345")
    assert (await rig.run(rig.call("login"))).content == "5"


async def test_an_outage_that_lasts_is_told_without_its_address() -> None:
    """A long outage is an error for the tool with the secret's name, and without the address of Redis."""
    reader = SecretReader(failing(Secrets(database()), "get"), "task", max_outage=0)
    with pytest.raises(SecretUnavailableError) as caught:
        await reader.read("token")
    assert str(caught.value) == "the secret 'token' cannot be read now; try again later"
    assert caught.value.__context__ is None


def _rig(secrets: Secrets, task_id: str) -> ToolRig:
    rig = ToolRig(login, secrets=secrets)
    rig.task_id = task_id
    return rig


async def _answered(secrets: Secrets, task_id: str, token: str) -> str:
    """Ask for the token in a task, supply it to the root task, and return the result."""
    rig = _rig(secrets, task_id)
    question = await rig.ask(rig.call("login"))
    await secrets.put(task_id.split("/", maxsplit=1)[0], task_id, token)
    return (await rig.run(rig.call("login", "{}", _answer(question, task_id)))).content


async def test_each_agent_of_a_task_has_its_own_secrets() -> None:
    """Each agent of a task has its own secrets, even under the same name."""
    secrets, root = Secrets(database()), str(uuid4())
    tasks = [root, f"{root}/c1", f"{root}/c1/c2", f"{root}/c2"]
    results = [await _answered(secrets, task_id, "x" * length) for length, task_id in enumerate(tasks, 10)]
    again = [_rig(secrets, task_id) for task_id in tasks]
    assert results == ["10", "11", "12", "13"]
    assert [(await rig.run(rig.call("login", call_id="again"))).content for rig in again] == results
