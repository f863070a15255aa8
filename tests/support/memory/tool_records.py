"""Tool records in memory, for tests: what they compare the real store with."""

import json
import time
from dataclasses import dataclass

from pydantic import JsonValue

from everloop.stores.steps import Lease, OvertakenError
from everloop.stores.tool_records import Claim, ToolRecords
from everloop.workflows.contract.calls import ToolReply


@dataclass
class _Hold:
    token: str
    claim: Claim
    until: float


class MemoryToolRecords(ToolRecords):
    """Keeps everything until the process ends."""

    def __init__(self) -> None:
        self._holds: dict[tuple[str, str], _Hold] = {}
        self._orders: dict[tuple[str, str], str] = {}
        self._released: set[tuple[str, str]] = set()
        self._outcomes: dict[tuple[str, str], ToolReply] = {}
        self._kept: dict[tuple[str, str], str] = {}

    async def claim(self, lease: Lease, seconds: float) -> Claim:
        call = lease.task_id, lease.call_id
        if self._orders.get(call, "") > lease.order:
            return Claim.OVERTAKEN
        if call in self._outcomes:
            self._orders[call] = lease.order
            self._holds[call] = _Hold(lease.token, Claim.LOST, 0)
            return Claim.FINISHED
        held = self._holds.get(call)
        if held and held.token != lease.token and time.monotonic() < held.until:
            return Claim.HELD
        claim = Claim.LOST if held and held.token else Claim.FIRST
        if held and held.token == lease.token:
            claim = held.claim
        self._released.discard(call)
        self._orders[call] = lease.order
        self._holds[call] = _Hold(lease.token, claim, time.monotonic() + seconds)
        return claim

    async def renew(self, lease: Lease, seconds: float) -> bool:
        call = lease.task_id, lease.call_id
        if not self._is_ours(lease):
            return False
        if call not in self._outcomes:
            hold = self._holds.setdefault(call, _Hold(lease.token, Claim.LOST, 0))
            hold.until = time.monotonic() + seconds
        return True

    async def release(self, lease: Lease, seconds: float = 0) -> None:
        call = lease.task_id, lease.call_id
        if (held := self._holds.get(call)) and held.token == lease.token:
            del self._holds[call]
            self._released.add(call)
            if seconds:
                self._holds[call] = _Hold("", Claim.FIRST, time.monotonic() + seconds)

    async def revoke(self, lease: Lease) -> None:
        call = lease.task_id, lease.call_id
        if call not in self._outcomes:
            self._orders[call] = lease.order
            self._holds[call] = _Hold(lease.token, Claim.LOST, 0)

    async def outcome(self, task_id: str, call_id: str) -> ToolReply | None:
        return self._outcomes.get((task_id, call_id))

    async def finish(self, lease: Lease, outcome: ToolReply) -> ToolReply:
        call = lease.task_id, lease.call_id
        if not self._is_ours(lease):
            raise OvertakenError
        self._holds.setdefault(call, _Hold(lease.token, Claim.LOST, 0))
        return self._outcomes.setdefault(call, outcome)

    async def keep(self, lease: Lease, call_id: str, value: JsonValue) -> None:
        if not self._is_ours(lease):
            raise OvertakenError
        self._kept[lease.task_id, call_id] = json.dumps(value)

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        return json.loads(self._kept.get((task_id, call_id), "null"))

    def _is_ours(self, lease: Lease) -> bool:
        """Whether the call is ours, or nobody's."""
        call = lease.task_id, lease.call_id
        held = self._holds.get(call)
        return call not in self._released and (held is None or held.token == lease.token)
