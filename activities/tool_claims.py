"""Which calls have run, and what they came to: the records, as an attempt at a call uses them."""

import structlog
from redis.exceptions import RedisError

from activities.tool_messages import unknown_outcome
from activities.tool_questions import phase_key
from stores.tool_records import Claim, ToolRecords
from workflows.contract.calls import RunToolInput, ToolReply
from workflows.contract.messages import ToolMessage

_log = structlog.get_logger()


class ToolClaims:
    """Knows a call by what the model wrote, whatever plugins make of it, and by how much it has asked."""

    def __init__(self, records: ToolRecords) -> None:
        self._records = records

    async def claim(self, call: RunToolInput) -> Claim | ToolReply:
        """Record that the call starts now; return its outcome instead if it already finished."""
        return await self._records.claim(call.task.task_id, _key(call))

    async def keep(self, call: RunToolInput, outcome: ToolReply) -> ToolReply:
        """Record an outcome and return the one that stands."""
        try:
            return await self._records.finish(call.task.task_id, _key(call), outcome)
        except (RedisError, OSError) as error:
            # We know how it ended, and history will: a second attempt would only know that it began.
            _log.warning("tool outcome not recorded", error_type=type(error).__name__)
            return outcome

    async def release(self, call: RunToolInput) -> bool:
        """Give a call back that is to be tried again; return whether that worked."""
        try:
            await self._records.release(call.task.task_id, _key(call))
        except (RedisError, OSError) as error:
            # The next attempt would take this one for lost.
            _log.warning("failed tool not released", error_type=type(error).__name__)
            return False
        return True

    async def end(self, call: RunToolInput, ended: ToolMessage) -> ToolMessage:
        """Return the end that people want, or the result that an earlier run of the task has come to.

        The end is not recorded: after a Reset people may decide otherwise.
        """
        _, result = await self._peek(call)
        return result or ended

    async def refuse(self, call: RunToolInput, refused: ToolMessage) -> ToolMessage:
        """Return why the call may not run, or what an attempt before this one has come to.

        If that one was lost, nobody knows whether the call took effect. The refusal is not recorded: after a
        Reset it may be decided otherwise.
        """
        was_started, result = await self._peek(call)
        if not was_started:
            return result or refused
        stands = await self.keep(call, unknown_outcome(call.call))
        return stands if isinstance(stands, ToolMessage) else refused

    async def _peek(self, call: RunToolInput) -> tuple[bool, ToolMessage | None]:
        """Return whether the call was started and has not ended, and the result that it came to."""
        claim = await self.claim(call)
        if claim is Claim.FIRST:
            await self._records.release(call.task.task_id, _key(call))
        return claim is Claim.STARTED_BEFORE, claim if isinstance(claim, ToolMessage) else None


def _key(call: RunToolInput) -> str:
    return phase_key(call.call, len(call.answers))
