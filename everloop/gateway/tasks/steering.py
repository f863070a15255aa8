"""Actions of operators on tasks: signal, cancel, unpause, retry, reset. The history records the operator.

Actions in Temporal's own UI or command have the same effect, and another signature.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    RequestCancelWorkflowExecutionRequest,
    ResetActivityRequest,
    ResetWorkflowExecutionRequest,
    SignalWorkflowExecutionRequest,
    UnpauseActivityRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.client import Client

from everloop.gateway.errors import RPC_TIMEOUT, translate_not_found, translate_temporal_errors
from everloop.gateway.tasks.workflow_runs import history_of
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.ports import AgentPort, ContextPort, ModelPort, NarratorPort, PublishPort
from everloop.workflows.contract.questions import Note

_SIGNER = "everloop-operator: "
"""Prefix of the identities of operators who act through a gateway."""

_BACK = " went back to before the failure"
"""Suffix of a reset's reason, which names the operator: Temporal stores no identity for resets."""


_ASIDE = frozenset(
    {
        ContextPort.save_context.__name__,
        NarratorPort.narrate.__name__,
        PublishPort.publish.__name__,
        AgentPort.after_completion.__name__,
    }
)
"""Calls whose failure does not fail the task."""


@dataclass(frozen=True)
class Signature:
    """Operator of an action. Of the signals with one `request_id` a run accepts the first."""

    by: str
    request_id: str

    @property
    def identity(self) -> str:
        return _SIGNER + self.by


def signer_of(identity: str) -> str:
    """Return the operator in an identity; empty if the action did not go through a gateway."""
    return identity.removeprefix(_SIGNER) if identity.startswith(_SIGNER) else ""


def signer_of_reset(reason: str) -> str:
    """Return the operator in the reason of a reset."""
    return signer_of(reason.removesuffix(_BACK)) if reason.endswith(_BACK) else ""


class Steering:
    """Acts on the newest run of a task.

    Raises of all methods: TaskUnknownError: the task does not exist, or has ended.
    TemporalUnavailableError: the outcome is unknown.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._service = client.workflow_service

    async def signal(self, task_id: str, name: str, given: Wire | None, sign: Signature) -> None:
        """Send a signal. Temporal stores it while the task is paused, and while there is no worker."""
        encoded = await self._client.data_converter.encode([given]) if given else []
        request = SignalWorkflowExecutionRequest(
            workflow_execution=WorkflowExecution(workflow_id=task_id),
            signal_name=name,
            input=Payloads(payloads=encoded) if encoded else None,
            request_id=sign.request_id,
        )
        await self._ask(task_id, sign, self._service.signal_workflow_execution, request)

    async def cancel(self, task_id: str, sign: Signature) -> None:
        """Request the cancellation of a task."""
        request = RequestCancelWorkflowExecutionRequest(
            workflow_execution=WorkflowExecution(workflow_id=task_id), request_id=sign.request_id
        )
        await self._ask(task_id, sign, self._service.request_cancel_workflow_execution, request)

    async def unpause(self, task_id: str, run_id: str, sign: Signature) -> None:
        """Resume a paused run."""
        request = UnpauseWorkflowExecutionRequest(
            workflow_id=task_id, run_id=run_id, reason="resumed", request_id=sign.request_id
        )
        await self._ask(task_id, sign, self._service.unpause_workflow_execution, request)

    async def unpause_call(self, task_id: str, activity_id: str, sign: Signature) -> None:
        """Resume a paused activity."""
        request = UnpauseActivityRequest(id=activity_id)
        await self._on_call(task_id, sign, "let a paused call go on", self._service.unpause_activity, request)

    async def retry_call(self, task_id: str, activity_id: str, sign: Signature) -> None:
        """Start the next attempt of an activity now."""
        request = ResetActivityRequest(id=activity_id)
        note = "made a call again at once that had failed"
        await self._on_call(task_id, sign, note, self._service.reset_activity, request)

    async def _on_call(
        self,
        task_id: str,
        sign: Signature,
        note: str,
        call: Callable[..., Awaitable[object]],
        request: UnpauseActivityRequest | ResetActivityRequest,
    ) -> None:
        """Act on an activity, after a signal that records the action: the history does not."""
        await self.signal(task_id, "note", Note(note=note), sign)
        request.execution.workflow_id = task_id
        await self._ask(task_id, sign, call, request)

    async def reset(self, task_id: str, run_id: str, sign: Signature) -> bool:
        """Continue an ended run in a new one, from before its end; return whether that was possible.

        Tool results are recorded outside of the run, so that no call is repeated.
        """
        point = await self._last_good_point(task_id, run_id)
        if point is None:
            return False
        request = ResetWorkflowExecutionRequest(
            workflow_execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
            reason=sign.identity + _BACK,
            workflow_task_finish_event_id=point,
            request_id=sign.request_id,
        )
        await self._ask(task_id, sign, self._service.reset_workflow_execution, request)
        return True

    async def _ask(
        self,
        task_id: str,
        sign: Signature,
        call: Callable[..., Awaitable[object]],
        request: Any,  # noqa: ANN401 -- any request with an identity
    ) -> None:
        request.namespace, request.identity = self._client.namespace, sign.identity
        async with translate_temporal_errors(), translate_not_found(task_id):
            await call(request, retry=True, timeout=RPC_TIMEOUT)

    async def _last_good_point(self, task_id: str, run_id: str) -> int | None:
        """Return the step to repeat: the one that led to the failure, or to the model's last reply."""
        found = _Point()
        async for event in history_of(self._client, task_id, run_id):
            found.read(event)
        return found.event_id


_FAILED_CALLS = ("activity_task_failed", "activity_task_timed_out")
_STOPPED_RUNS = ("workflow_execution_terminated", "workflow_execution_timed_out")


class _Point:
    """Scans a history to its end; `event_id` is then that of the event to reset to."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._found: int | None = None
        self._scheduled: dict[int, tuple[str, int | None]] = {}

    @property
    def event_id(self) -> int | None:
        return self._found or self._step

    def read(self, event: HistoryEvent) -> None:
        field = event.WhichOneof("attributes") or ""
        kind = field.removesuffix("_event_attributes")
        if kind == "workflow_task_completed":
            self._step = event.event_id
        elif kind == "activity_task_scheduled":
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            self._scheduled[event.event_id] = name, self._step
        elif kind == "activity_task_completed" or kind in _FAILED_CALLS:
            self._end_call(getattr(event, field).scheduled_event_id, failed=kind in _FAILED_CALLS)
        elif kind in _STOPPED_RUNS:
            self._found = self._step  # it was ended from outside: all of it is valid

    def _end_call(self, scheduled: int, *, failed: bool) -> None:
        name, step = self._scheduled.pop(scheduled, ("", None))
        if name == ModelPort.call_model.__name__ or (failed and name not in _ASIDE):
            self._found = step
