"""The record of a tool call, as an attempt uses it: its claim, its stored value and its outcome."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import activity

from everloop.activities.lease import QUICK_LEASE, TOOL_LEASE, CallLease, RunSteps, is_first_attempt
from everloop.activities.store_retries import MAX_OUTAGE, StoreAwayError, retry_for, suppress_store_errors
from everloop.activities.tools.approval_policies import phase_key
from everloop.activities.tools.tool_results import unknown_outcome
from everloop.stores.scripts import Step
from everloop.stores.tool_records import Claim, ToolRecords
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.names import call_key

MAX_STORED_BYTES = 64 * 1024
"""Limit of the JSON that one call may store; larger values belong in an artifact."""


class KeepingFailedError(Exception):
    """The value is too large, or not JSON, or its store is unavailable; the message says which."""


class ToolClaim(CallLease):
    """The rights of one attempt at a call, and the outcome of all attempts.

    Identifies the call by the model's text, regardless of plugins' changes, and by the number of its
    questions.
    """

    def __init__(
        self,
        records: ToolRecords,
        call: RunToolInput,
        *,
        is_repeatable: bool = False,
        run_steps: RunSteps | None = None,
    ) -> None:
        key = phase_key(call.call, len(call.answers))
        seconds = QUICK_LEASE if activity.info().is_local else TOOL_LEASE
        super().__init__(
            records, call.task.task_id, key, seconds, is_repeatable=is_repeatable, run_steps=run_steps
        )
        self.is_published = False
        """True if the steps that follow from the outcome ran in the round trip that recorded it."""
        self._call = call.call
        self._kept = call_key(call.call)
        if not (is_repeatable or is_first_attempt()):
            self._reply_position = call.reply_position

    async def begin(
        self, *steps: Step[Any], before: Sequence[Step[Any]] = ()
    ) -> tuple[Claim | ToolReply, JsonValue]:
        """Return the outcome of the call, or this attempt's claim, and the stored value.

        Waits for a running attempt. The value may be of any earlier attempt, before any question. The
        steps are as for `claim`.
        """
        claimed, *_ = await self.claim(*steps, before=before)
        if claimed.claim is Claim.FINISHED:
            return claimed.outcome or Claim.LOST, claimed.kept
        return claimed.claim, claimed.kept

    async def finish(self, outcome: ToolReply, *after: Step[Any]) -> ToolReply:
        """Record an outcome and return the one that counts; if it is this one, run the steps after it.

        They use the claim `ENDED`.

        Raises:
            OvertakenError: The call belongs to another attempt, or to none.
        """
        await self.check_task()
        with suppress_store_errors("tool outcome not recorded"):
            stands, *done = await self._run_steps(self._records.finishing(self.lease, outcome), *after)
            self.is_published = bool(done) and done[-1] is not None
            return stands
        # The outcome is known, and history will have it: a second attempt would only find that the call
        # began.
        return outcome

    async def give_back(self, delay: timedelta) -> bool:
        """Release a call that is retried after a delay; return True if that worked."""
        with suppress_store_errors("failed tool not released"):
            await self.release(delay)
            return True
        return False  # the next attempt would consider this one lost

    async def kept(self) -> JsonValue:
        """Return the value that the call has stored."""
        return await self._records.kept(self.lease.task_id, call_key(self._call))

    async def keep(self, value: JsonValue) -> None:
        """Replace the stored value.

        Raises:
            KeepingFailedError: It is not JSON, too large, or the store did not answer for too long.
            OvertakenError: The call belongs to another attempt, or to none.
        """
        if problem := _problem_of(value):
            raise KeepingFailedError(problem)
        await self.check_task()
        try:
            await retry_for(lambda: self._records.keep(self.lease, call_key(self._call), value), MAX_OUTAGE)
        except StoreAwayError:
            problem = "what the call keeps cannot be stored now; try again later"
        if problem:  # outside of `except`: the error must not refer to one with the store's address
            raise KeepingFailedError(problem)

    async def close(self, ended: ToolMessage) -> ToolMessage:
        """Return the end that people decided, or the result of an earlier run of the task.

        The end is not recorded: after a Reset people may decide otherwise.
        """
        was_started, result = await self._peek()
        if was_started:
            await self.end()
        return result or ended

    async def refuse(self, refused: ToolMessage) -> ToolMessage:
        """Return the refusal of the call, or the result of an earlier attempt.

        If that attempt was lost, it is unknown whether the call took effect. The refusal is not recorded:
        after a Reset the decision may differ.
        """
        was_started, result = await self._peek()
        if not was_started:
            return result or refused
        stands = await self.finish(unknown_outcome(self._call))
        return stands if isinstance(stands, ToolMessage) else refused

    async def _peek(self) -> tuple[bool, ToolMessage | None]:
        """Return whether the call was started and has not ended, and its result."""
        claim, *_ = await self.begin()
        if claim is Claim.FIRST:
            await self.release()
        return claim is Claim.LOST, claim if isinstance(claim, ToolMessage) else None


def _problem_of(value: JsonValue) -> str:
    """Return the reason why a value cannot be stored, empty if it can."""
    try:
        size = len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"keep takes a JSON value, and this is none: {error}"
    if size > MAX_STORED_BYTES:
        return (
            f"the value has {size} bytes of JSON, and a call may keep {MAX_STORED_BYTES}; "
            "write the rest into an artifact and keep its id"
        )
    return ""
