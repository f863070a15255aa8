"""The record of a tool call, as an attempt uses it: what was claimed, kept, and came out."""

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
"""Bytes of JSON that one call may keep; whatever is larger belongs into an artifact."""


class KeepingFailedError(Exception):
    """The value is too large, or not JSON, or its store is away; the message says which."""


class ToolClaim(CallLease):
    """What one attempt at a call may do, and what all attempts have come to.

    Knows the call by what the model wrote, whatever plugins make of it, and by how much it has asked.
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
        """Whether what follows from the outcome was done in the step that recorded it."""
        self._call = call.call
        self._kept = call_key(call.call)
        if not (is_repeatable or is_first_attempt()):
            self._reply_position = call.reply_position

    async def begin(
        self, *steps: Step[Any], before: Sequence[Step[Any]] = ()
    ) -> tuple[Claim | ToolReply, JsonValue]:
        """Wait for an attempt that is at work; return the outcome of the call, or that it is ours now.

        And the value that it has kept, however many attempts and questions ago. The steps are as of `claim`.
        """
        claimed, *_ = await self.claim(*steps, before=before)
        if claimed.claim is Claim.FINISHED:
            return claimed.outcome or Claim.LOST, claimed.kept
        return claimed.claim, claimed.kept

    async def finish(self, outcome: ToolReply, *after: Step[Any]) -> ToolReply:
        """Record an outcome and return the one that stands; if it is this one, do the steps after it.

        They take the claim `ENDED`.

        Raises:
            OvertakenError: the call is another attempt's, or nobody's.
        """
        await self.check_task()
        with suppress_store_errors("tool outcome not recorded"):
            stands, *done = await self._run_steps(self._records.finishing(self.lease, outcome), *after)
            self.is_published = bool(done) and done[-1] is not None
            return stands
        # We know how it ended, and history will: a second attempt would only know that it began.
        return outcome

    async def give_back(self, delay: timedelta) -> bool:
        """Give a call back that is to be tried again, after a delay; return whether that worked."""
        with suppress_store_errors("failed tool not released"):
            await self.release(delay)
            return True
        return False  # the next attempt would take this one for lost

    async def kept(self) -> JsonValue:
        """Return the value that the call has kept."""
        return await self._records.kept(self.lease.task_id, call_key(self._call))

    async def keep(self, value: JsonValue) -> None:
        """Keep a value in place of the last one.

        Raises:
            KeepingFailedError: it is no JSON, too large, or the store did not answer for too long.
            OvertakenError: the call is another attempt's, or nobody's.
        """
        if problem := _problem_of(value):
            raise KeepingFailedError(problem)
        await self.check_task()
        try:
            await retry_for(lambda: self._records.keep(self.lease, call_key(self._call), value), MAX_OUTAGE)
        except StoreAwayError:
            problem = "what the call keeps cannot be stored now; try again later"
        if problem:  # outside of `except`: the error may not lead to one that names the store's address
            raise KeepingFailedError(problem)

    async def close(self, ended: ToolMessage) -> ToolMessage:
        """Return the end that people want, or the result that an earlier run of the task has come to.

        The end is not recorded: after a Reset people may decide otherwise.
        """
        was_started, result = await self._peek()
        if was_started:
            await self.end()
        return result or ended

    async def refuse(self, refused: ToolMessage) -> ToolMessage:
        """Return why the call may not run, or what an attempt before this one has come to.

        If that one was lost, nobody knows whether the call took effect. The refusal is not recorded: after a
        Reset it may be decided otherwise.
        """
        was_started, result = await self._peek()
        if not was_started:
            return result or refused
        stands = await self.finish(unknown_outcome(self._call))
        return stands if isinstance(stands, ToolMessage) else refused

    async def _peek(self) -> tuple[bool, ToolMessage | None]:
        """Return whether the call was started and has not ended, and the result that it came to."""
        claim, *_ = await self.begin()
        if claim is Claim.FIRST:
            await self.release()
        return claim is Claim.LOST, claim if isinstance(claim, ToolMessage) else None


def _problem_of(value: JsonValue) -> str:
    """Return why a value cannot be kept; empty if it can."""
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
