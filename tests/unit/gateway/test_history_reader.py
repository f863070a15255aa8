"""Events of histories, read in one go and from any event on."""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from everloop.gateway.tasks.history_items import Item
from everloop.gateway.tasks.history_reader import HistoryReader
from everloop.runtime.protocol.a2a_tasks import TaskUrl
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER

HISTORIES = Path(__file__).parents[2] / "replay/histories"
OF_TASKS = sorted(
    path.stem
    for path in HISTORIES.glob("*.json")
    if not path.stem.startswith(("push_", "housekeeping_", "deletion_"))
)
TYPES = {
    "quick_tools": {"toolCall", "toolResult", "message", "modelReply", "status", "artifact"},
    "sub_agent_asks": {"subAgent", "toolCall", "toolResult", "message"},
    "is_handed_over": {"subAgent"},
    "compaction": {"modelCall", "modelReply"},
}


def reader(name: str, version: int = 0, iteration: int = 0) -> HistoryReader:
    url = TaskUrl(name, "context", "http://here/")
    return HistoryReader(WIRE_DATA_CONVERTER, url, version=version, iteration=iteration)


@pytest.mark.parametrize("name", OF_TASKS)
async def test_a_history_tells_the_same_from_any_event_on(name: str) -> None:
    """A client that resumes after an event gets the same events as one without a pause."""
    history = WorkflowHistory.from_json(name, json.loads((HISTORIES / f"{name}.json").read_text()))
    whole, places = list[list[Item]](), list[tuple[int, int]]()
    first = reader(name)
    for event in history.events:
        places.append((first.version, first.iteration))
        whole.append(await first.read(event))
    told = {item.type for items in whole for item in items}
    assert {"taskCreated", "message", "modelCall", "modelReply", "status"} <= told
    assert TYPES.get(name.removesuffix("_before_first_release"), set()) <= told
    for start in range(0, len(whole), 3):
        again = reader(name, *places[start])
        rest = [await again.read(event, told=at < start) for at, event in enumerate(history.events)]
        assert rest[start:] == whole[start:]
        assert not any(rest[:start])
