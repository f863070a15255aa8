"""The demo agent: what it offers, and notes that can be counted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from everloop.activities.tools.artifacts import TaskArtifacts
from everloop.agents.tool_context import ToolContext
from everloop.examples.demo import MAX_NOTE, DemoSettings, DemoTools, make_agent
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.workflows.contract.tasks import TaskRef
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.memory.task_views import MemoryTaskViews


async def _ignore(_message: str) -> None:
    pass


VIEWS = MemoryTaskViews()
TASK = TaskRef(task_id="task", run_id="run", context_id="context", owner="anonymous", agent_id="demo")
CONTEXT = ToolContext(
    task_id="task",
    context_id="context",
    owner="anonymous",
    call_id="call-1",
    attempt=1,
    idempotency_key="task/call-1",
    progress=_ignore,
    artifacts=TaskArtifacts(ArtifactPublisher(MemoryArtifacts(VIEWS), TASK, 1, VIEWS), "context", "task"),
)


def test_only_note_is_not_idempotent(tmp_path: Path) -> None:
    """All that the agent offers may run again after a crash, except the tool with an effect."""
    agent = make_agent(DemoSettings(directory=tmp_path))

    assert {name: tool.idempotent for name, tool in agent.tools.items()} == {
        "list_files": True,
        "read_file": True,
        "search_files": True,
        "calculate": True,
        "note": False,
        "artifact_update": True,
        "list_artifacts": True,
        "get_artifact": True,
    }


async def test_every_note_is_one_line_of_the_ledger_with_its_call(tmp_path: Path) -> None:
    """Lines are only ever added, so that repeated calls would show."""
    ledger = tmp_path / "new" / "ledger.jsonl"
    tools = DemoTools(DemoSettings(directory=tmp_path, ledger=ledger))

    await tools.note("first\nfinding", CONTEXT)
    await tools.note("second", replace(CONTEXT, call_id="call-2", attempt=2))

    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [(line["call_id"], line["attempt"], line["text"]) for line in lines] == [
        ("call-1", 1, "first\nfinding"),
        ("call-2", 2, "second"),
    ]


@pytest.mark.parametrize("text", ["", " \n", "x" * (MAX_NOTE + 1)])
async def test_an_empty_or_long_note_is_refused_without_effect(tmp_path: Path, text: str) -> None:
    """What is refused leaves no line."""
    ledger = tmp_path / "ledger.jsonl"
    tools = DemoTools(DemoSettings(directory=tmp_path, ledger=ledger))

    with pytest.raises(ValueError, match="a note has 1 to 500 characters"):
        await tools.note(text, CONTEXT)

    assert not ledger.exists()
