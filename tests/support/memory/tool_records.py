"""Tool records in memory, for tests: what they compare the real store with."""

import json
import time
from dataclasses import dataclass

from pydantic import JsonValue

from everloop.stores.steps import Lease, OvertakenError, Step
from everloop.stores.tool_records import Claim, Claimed, ToolRecords
from everloop.workflows.contract.calls import ToolReply
from tests.support.memory.steps import MemorySteps, memory_step


@dataclass
class _Hold:
    token: str
    claim: Claim
    until: float


class MemoryToolRecords(ToolRecords):
    """Keeps everything until the process ends."""

    def __init__(self) -> None:
        self.steps = MemorySteps()
        self._attempts: dict[tuple[str, str], tuple[int, str]] = {}
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

    def claiming(self, lease: Lease, seconds: float, *, goes_on: bool = True) -> Step[Claimed]:
        async def claim() -> Claimed:
            claim, call = await self.claim(lease, seconds), (lease.task_id, lease.call_id)
            if claim not in {Claim.OVERTAKEN, Claim.HELD}:
                count, token = self._attempts.get(call, (0, ""))
                if token != lease.token:
                    self._attempts[call] = max(count + 1, lease.attempt), lease.token
            return Claimed(claim, self._attempts.get(call, (1, ""))[0], self._outcomes.get(call))

        ours = {Claim.FIRST, Claim.LOST} if goes_on else {Claim.FIRST}
        return memory_step(lease.task_id, claim, lambda claimed: claimed.claim not in ours)

    def releasing(self, lease: Lease, seconds: float = 0, *, counts: bool = True) -> Step[bool]:
        async def release() -> bool:
            await self.release(lease, seconds)
            count, token = self._attempts.get((lease.task_id, lease.call_id), (1, ""))
            self._attempts[lease.task_id, lease.call_id] = count - (not counts), token
            return True

        return memory_step(lease.task_id, release)

    def finishing(self, lease: Lease, outcome: ToolReply) -> Step[ToolReply]:
        return memory_step(
            lease.task_id, lambda: self.finish(lease, outcome), lambda standing: standing != outcome
        )

    def keeping(self, lease: Lease, call_id: str, value: JsonValue) -> Step[bool]:
        async def keep() -> bool:
            await self.keep(lease, call_id, value)
            return True

        return memory_step(lease.task_id, keep)

    def reading_kept(self, task_id: str, call_id: str) -> Step[JsonValue]:
        return memory_step(task_id, lambda: self.kept(task_id, call_id))

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
