"""Tool records in memory, for one process and for tests."""

import json

from pydantic import JsonValue

from stores.tool_records import Claim, ToolRecords
from workflows.contract.calls import ToolReply


class MemoryToolRecords(ToolRecords):
    """Keeps everything until the process ends."""

    def __init__(self) -> None:
        self._started: set[tuple[str, str]] = set()
        self._outcomes: dict[tuple[str, str], ToolReply] = {}
        self._kept: dict[tuple[str, str], str] = {}

    async def claim(self, task_id: str, call_id: str) -> Claim | ToolReply:
        call = task_id, call_id
        if call in self._outcomes:
            return self._outcomes[call]
        if call in self._started:
            return Claim.STARTED_BEFORE
        self._started.add(call)
        return Claim.FIRST

    async def finish(self, task_id: str, call_id: str, outcome: ToolReply) -> ToolReply:
        return self._outcomes.setdefault((task_id, call_id), outcome)

    async def release(self, task_id: str, call_id: str) -> None:
        self._started.discard((task_id, call_id))

    async def keep(self, task_id: str, call_id: str, value: JsonValue) -> None:
        self._kept[task_id, call_id] = json.dumps(value)

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        return json.loads(self._kept.get((task_id, call_id), "null"))
