"""The examples of docs/client.md run."""

import ast
import asyncio
import inspect
import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.support.rigs.deployment import Service
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, tool_call

PAGE = Path("docs/client.md")
EXAMPLES = re.findall(r"^```python\n(.+?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_an_example_runs(
    service: Service, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands, against the gateway of this test."""
    (tmp_path / "gate").touch()
    service.script(partial(_reply, tmp_path))
    text = EXAMPLES[number].replace("http://127.0.0.1:8080", service.gateway.url)
    names: dict[str, object] = {"folder": tmp_path}

    code = compile(text, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)  # noqa: S307 -- an example of ours
    else:
        await asyncio.to_thread(exec, code, names)

    expected = {0: "21 degrees", 1: "21 degrees", 2: "[report: reported]", 3: "Which seats?", 4: "big.bin"}
    assert expected[number] in capsys.readouterr().out


def _reply(folder: Path, request: ReceivedRequest) -> Reply:
    asked = next(str(each["content"]) for each in reversed(request.conversation) if each["role"] == "user")
    calls = {
        "Book": ("book", {"kind": "data", "ledger": str(folder / "ledger")}),
        "Write": ("write_big", {"artifact_id": "big", "megabytes": 1, "gate": str(folder / "gate")}),
        "Rome": ("report", {"words": "sunny"}),
    }
    if request.tool_results:
        return Reply(["It has ", "21 degrees."])
    name, arguments = next(call for word, call in calls.items() if word in asked)
    return Reply([tool_call(name, json.dumps(arguments))])
