"""Translation of Temporal's history into the events of a task."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes, HistoryEvent
from temporalio.api.update.v1 import Request
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, FailureError

from everloop.gateway.tasks import history_items
from everloop.gateway.tasks.history_items import Data, Item
from everloop.gateway.tasks.steering import signer_of, signer_of_reset
from everloop.runtime.protocol.a2a_tasks import TaskUrl, timestamp
from everloop.workflows.contract.calls import (
    CallModelInput,
    CompactContextInput,
    LoadAgentInput,
    LoadedAgent,
    PublishInput,
    RunToolInput,
    StoreResultInput,
    ToolReply,
)
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, StatusChanged, TaskEvent
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    text_of,
)
from everloop.workflows.contract.names import call_key
from everloop.workflows.contract.ports import AgentPort, ModelPort, PublishPort, ToolPort
from everloop.workflows.contract.questions import ApproverAnswer, Question
from everloop.workflows.contract.tasks import TaskInput, TaskResult, TaskState, begun

T = TypeVar("T")
_Items = Iterable[Item]
_NOTHING: tuple[Item, ...] = ()

MODEL_CALL = ModelPort.call_model.__name__
SUMMARY = ModelPort.compact_context.__name__
TOOL_CALL = ToolPort.run_tool.__name__
STORED_RESULT = ToolPort.store_result.__name__
AGENT_CALL = AgentPort.load_agent.__name__
PUBLISHED = PublishPort.publish.__name__

_QUICK = "core_local_activity"
"""Marker that the SDK writes for a local activity."""

_OPERATORS_SIGNALS = ("approve", "skip_call", "resume", "note")

_GIVEN = {"call_id": "callId", "approved": "approved", "note": "note"}
"""Published fields of a signal's input, if present."""

_ACTIVITY = "activity_task_"
_ACTIVITY_ENDS = frozenset({"completed", "failed", "timed_out", "canceled"})
_CHILD = "child_workflow_execution_"
_CHILD_ENDS = {
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
    "timed_out": TaskState.FAILED,
    "terminated": TaskState.FAILED,
    "canceled": TaskState.CANCELED,
}


class HistoryReader:
    """Reads the events of a task's runs, in order, and stores the data that later ones refer to.

    `version` is that of the last published status, `iteration` the current one.
    """

    def __init__(self, converter: DataConverter, url: TaskUrl, *, version: int, iteration: int) -> None:
        self._converter = converter
        self._url = url
        self.version = version
        self.iteration = iteration
        self._scheduled: dict[int, tuple[ActivityTaskScheduledEventAttributes, datetime]] = {}
        self._attempts: dict[int, int] = {}
        self._reply: list[Payload] = []
        self._updates: dict[str, Request] = {}
        self._agents_called: dict[str, datetime] = {}
        self._readers: Mapping[str, Callable[[HistoryEvent, datetime], Awaitable[_Items]]] = {
            "workflow_execution_started": self._started,
            "workflow_execution_update_accepted": self._update_accepted,
            "workflow_execution_signaled": self._signaled,
            "workflow_execution_cancel_requested": self._cancel_requested,
            "workflow_execution_paused": self._paused,
            "workflow_execution_unpaused": self._paused,
            "workflow_execution_completed": self._completed,
            "workflow_execution_terminated": self._terminated,
            "workflow_task_failed": self._reset,
            "activity_task_scheduled": self._activity_scheduled,
            "marker_recorded": self._marker,
            "start_child_workflow_execution_initiated": self._child_begun,
        }

    async def read(self, event: HistoryEvent, *, told: bool = False) -> list[Item]:
        """Return the items of an event; empty for an event that is already reported (`told`).

        Raises:
            ApplicationError, BlobsUnavailableError: a payload is unavailable.
        """
        kind, at = _kind(event), event.event_time.ToDatetime(UTC)
        if kind == "workflow_execution_started":
            self._begin_run()
        await self._note(event, at)
        items = [] if told else list(await self._items(kind, event, at))
        if _end(kind, _ACTIVITY) in _ACTIVITY_ENDS:
            number = _attributes(event).scheduled_event_id
            self._scheduled.pop(number, None)
            self._attempts.pop(number, None)
        return items

    def _begin_run(self) -> None:
        self._scheduled.clear()
        self._attempts.clear()
        self._updates.clear()

    async def _note(self, event: HistoryEvent, at: datetime) -> None:
        match _kind(event):
            case "activity_task_scheduled":
                scheduled = event.activity_task_scheduled_event_attributes
                self._scheduled[event.event_id] = scheduled, at
                if scheduled.activity_type.name == AGENT_CALL:
                    called = await self._first(scheduled.input.payloads, LoadAgentInput)
                    self._agents_called[called.call.id] = at
            case "activity_task_started":
                started = event.activity_task_started_event_attributes
                self._attempts[started.scheduled_event_id] = started.attempt
            case "workflow_execution_update_admitted":
                request = event.workflow_execution_update_admitted_event_attributes.request
                self._updates[request.meta.update_id] = request
            case "activity_task_completed":
                completed = event.activity_task_completed_event_attributes
                activity = self._scheduled.get(completed.scheduled_event_id)
                if activity and activity[0].activity_type.name == MODEL_CALL:
                    self._reply = list(completed.result.payloads)
            case _:
                pass

    async def _items(self, kind: str, event: HistoryEvent, at: datetime) -> _Items:
        if reader := self._readers.get(kind):
            return await reader(event, at)
        if _end(kind, _ACTIVITY) in _ACTIVITY_ENDS:
            return await self._activity_ended(event, at)
        if _end(kind, _CHILD) in _CHILD_ENDS:
            return await self._child_ended(event, at)
        return _NOTHING

    # Events of the task.

    async def _started(self, event: HistoryEvent, at: datetime) -> _Items:
        started = event.workflow_execution_started_event_attributes
        if started.continued_execution_run_id:
            return _NOTHING
        task = await self._first(started.input.payloads, TaskInput)
        return history_items.created(begun(task, self._url.task_id, at), self._url)

    async def _completed(self, event: HistoryEvent, at: datetime) -> _Items:
        payloads = event.workflow_execution_completed_event_attributes.result.payloads
        result = await self._first(payloads, TaskResult)
        if result.state is not TaskState.COMPLETED or result.message or not result.excerpt:
            return _NOTHING
        return (Item("artifact", at, {"artifactId": RESPONSE_ARTIFACT}),)

    async def _terminated(self, event: HistoryEvent, at: datetime) -> _Items:
        reason = event.workflow_execution_terminated_event_attributes.reason
        return (Item("status", at, {"state": TaskState.FAILED.value, "reason": f"terminated: {reason}"}),)

    async def _cancel_requested(self, event: HistoryEvent, at: datetime) -> _Items:
        request = event.workflow_execution_cancel_requested_event_attributes
        return (Item("status", at, {"isCancelRequested": True, **_signed(request.identity)}),)

    async def _paused(self, event: HistoryEvent, at: datetime) -> _Items:
        is_paused = _kind(event) == "workflow_execution_paused"
        about = _attributes(event)
        data: Data = {"isPaused": is_paused, "reason": about.reason, **_signed(about.identity)}
        return (Item("status", at, data),)

    async def _reset(self, event: HistoryEvent, at: datetime) -> _Items:
        """Return the reset by which an operator began this run. It undoes later steps of the run before."""
        failed = event.workflow_task_failed_event_attributes
        if failed.cause != WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
            return _NOTHING
        reason = failed.failure.message
        by = signer_of_reset(reason)
        data: Data = {"isReset": True, **({"by": by} if by else {"reason": reason})}
        return (Item("status", at, data),)

    # Messages and signals.

    async def _update_accepted(self, event: HistoryEvent, at: datetime) -> _Items:
        request = event.workflow_execution_update_accepted_event_attributes.accepted_request
        if not request.input.name:  # for an update that a reset has reapplied
            request = self._updates.get(request.meta.update_id, request)
        given = request.input.args.payloads
        if request.input.name == "add_message":
            message = await self._first(given, UserMessage)
            return (Item("message", at, history_items.message_data(message, self._url)),)
        if request.input.name == "take_approvers_answer":
            answer = await self._first(given, ApproverAnswer)
            data: Data = {
                "role": "approver",
                "by": answer.approver,
                "question": answer.question_id,
                "approved": answer.approved,
                "note": answer.note,
            }
            return (Item("message", at, data),)
        return _NOTHING

    async def _signaled(self, event: HistoryEvent, at: datetime) -> _Items:
        sent = event.workflow_execution_signaled_event_attributes
        if sent.signal_name not in _OPERATORS_SIGNALS:
            return _NOTHING
        data: Data = {"role": "operator", "signal": sent.signal_name, **_signed(sent.identity)}
        given = await self._converter.decode(list(sent.input.payloads)[:1])
        if given and isinstance(given[0], dict):  # people type it, so it may be any value
            told = cast("dict[str, JsonValue]", given[0])
            data |= {word: told[name] for name, word in _GIVEN.items() if name in told}
        return (Item("message", at, data),)

    # Calls.

    async def _activity_scheduled(self, event: HistoryEvent, at: datetime) -> _Items:
        scheduled = event.activity_task_scheduled_event_attributes
        name, given = scheduled.activity_type.name, scheduled.input.payloads
        if name == MODEL_CALL:
            request = await self._first(given, CallModelInput)
            self.iteration = request.iteration
            return (*self._statuses(request.statuses), history_items.model_call(request, at))
        if name == SUMMARY:
            return (history_items.model_call(await self._first(given, CompactContextInput), at),)
        if name == PUBLISHED:
            return self._statuses((await self._first(given, PublishInput)).events)
        if name in {TOOL_CALL, AGENT_CALL}:
            called = await self._first(given, RunToolInput if name == TOOL_CALL else LoadAgentInput)
            return (*self._statuses(called.statuses), history_items.tool_call(called, at))
        return _NOTHING

    def _statuses(self, events: Iterable[TaskEvent]) -> Iterator[Item]:
        """Yield the statuses that no earlier call has carried."""
        for each in events:
            if isinstance(each, StatusChanged) and each.version > self.version:
                self.version = each.version
                yield history_items.status(each, self._url)

    async def _activity_ended(self, event: HistoryEvent, at: datetime) -> _Items:
        ended = _attributes(event)
        if ended.scheduled_event_id not in self._scheduled:
            return _NOTHING
        scheduled, began = self._scheduled[ended.scheduled_event_id]
        attempts = self._attempts.get(ended.scheduled_event_id, 1)
        times: Data = {"startedAt": timestamp(began), "endedAt": timestamp(at), "attempts": attempts}
        name = scheduled.activity_type.name
        if _kind(event) == "activity_task_completed":
            return await self._call_ended(name, scheduled.input.payloads, ended.result.payloads, at, times)
        failure = await self._failure(event)
        if name in {MODEL_CALL, SUMMARY}:
            return (Item("modelReply", at, {**failure, **times}),)
        if name in {TOOL_CALL, AGENT_CALL}:
            kind = RunToolInput if name == TOOL_CALL else LoadAgentInput
            call = (await self._first(scheduled.input.payloads, kind)).call
            data: Data = {"callId": call.id, "name": call.name, "isError": True, **failure, **times}
            return (Item("toolResult", at, data),)
        return _NOTHING

    async def _call_ended(
        self, name: str, given: Iterable[Payload], result: Iterable[Payload], at: datetime, times: Data
    ) -> _Items:
        if name in {MODEL_CALL, SUMMARY}:
            kind = AssistantMessage if name == MODEL_CALL else SummaryMessage
            data = history_items.reply_data(await self._first(result, kind))
            if name == SUMMARY:
                data["model"] = (await self._first(given, CompactContextInput)).model
            return (Item("modelReply", at, {**data, **times}),)
        if name == TOOL_CALL:
            reply = await self._tool_reply(result)
            return _NOTHING if isinstance(reply, Question) else self._result(reply, at, times)
        if name == STORED_RESULT:
            stored = (await self._first(given, StoreResultInput)).result
            began = self._agents_called.pop(stored.call_id, None)  # this call only stores the answer
            return self._result(stored, at, {**times, **({"startedAt": timestamp(began)} if began else {})})
        if name == AGENT_CALL:
            return await self._agent_loaded(given, result, at)
        return _NOTHING

    async def _marker(self, event: HistoryEvent, at: datetime) -> _Items:
        """Return a quick call, of which the history has the result only. The reply before has its arguments.

        Its own times are those of the worker's clock, which may differ from the server's.
        """
        marker = event.marker_recorded_event_attributes
        result = marker.details["result"].payloads if "result" in marker.details else ()
        if marker.marker_name != _QUICK or not result:
            return _NOTHING
        about = json.loads(marker.details["data"].payloads[0].data)
        if about["activity_type"] != TOOL_CALL:
            return _NOTHING
        reply = await self._tool_reply(result)
        call_id = reply.call.id if isinstance(reply, Question) else reply.call_id
        began = _moment(about["original_schedule_time"]) or at
        ended = max(began, _moment(about["complete_time"]) or at)
        call = next((each for each in await self._last_calls() if each.id == call_id), None)
        data: Data = {"callId": call_id, "name": call.name, "arguments": call.arguments} if call else {}
        calls = (Item("toolCall", began, data or {"callId": call_id}),)
        if isinstance(reply, Question):
            return calls
        times: Data = {"startedAt": timestamp(began), "endedAt": timestamp(ended), "attempts": 1}
        return (*calls, *self._result(reply, ended, times))

    async def _last_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls of the last reply."""
        return (await self._first(self._reply, AssistantMessage)).tool_calls if self._reply else ()

    def _result(self, result: ToolMessage, at: datetime, times: Data) -> Iterator[Item]:
        return history_items.tool_result(result, at, times, self._url)

    # Other agents.

    async def _child_begun(self, event: HistoryEvent, at: datetime) -> _Items:
        child = event.start_child_workflow_execution_initiated_event_attributes
        task = await self._first(child.input.payloads, TaskInput)
        data: Data = {
            "taskId": child.workflow_id,
            "agentId": task.agent.id,
            "state": TaskState.SUBMITTED.value,
            "request": text_of(task.message.parts),
        }
        key = child.workflow_id.rpartition("/")[2]
        if call := next((each for each in await self._last_calls() if call_key(each) == key), None):
            data |= {"callId": call.id, "name": call.name}
        return (Item("subAgent", at, data),)

    async def _child_ended(self, event: HistoryEvent, at: datetime) -> _Items:
        ended = _attributes(event)
        state = _CHILD_ENDS[_end(_kind(event), _CHILD)]
        data: Data = {"taskId": ended.workflow_execution.workflow_id, "state": state.value}
        if state is TaskState.COMPLETED:
            result = await self._first(ended.result.payloads, TaskResult)
            data |= {"state": result.state.value, "usage": result.usage.to_metadata()}
        return (Item("subAgent", at, data),)

    async def _agent_loaded(
        self, given: Iterable[Payload], result: Iterable[Payload], at: datetime
    ) -> _Items:
        """Return a handover. A sub-agent is reported at the start of its task."""
        load, loaded = await self._first(given, LoadAgentInput), await self._first(result, LoadedAgent)
        if loaded.question or loaded.refused or load.child != self._url.task_id:
            return _NOTHING
        data: Data = {"agentId": load.agent_id, "callId": load.call.id, "isHandover": True}
        return (Item("subAgent", at, data),)

    # Payloads.

    async def _failure(self, event: HistoryEvent) -> Data:
        """Return the failure of an activity."""
        if _kind(event) == "activity_task_canceled":
            return {"error": "canceled"}
        error = await self._converter.decode_failure(_attributes(event).failure)
        told = error.message if isinstance(error, FailureError) else str(error)
        named = error.type if isinstance(error, ApplicationError) else None
        return {"error": told, "reason": named or type(error).__name__}

    async def _tool_reply(self, result: Iterable[Payload]) -> ToolMessage | Question:
        # The annotation is of a type; the converter accepts any that pydantic can read.
        return await self._first(result, cast("type[ToolMessage | Question]", ToolReply))

    async def _first(self, payloads: Iterable[Payload], kind: type[T]) -> T:
        (value,) = await self._converter.decode(list(payloads)[:1], [kind])
        return value


def _signed(identity: str) -> Data:
    """Return the operator of an action through a gateway."""
    by = signer_of(identity)
    return {"by": by} if by else {}


def _kind(event: HistoryEvent) -> str:
    return (event.WhichOneof("attributes") or "").removesuffix("_event_attributes")


def _end(kind: str, prefix: str) -> str:
    return kind.removeprefix(prefix) if kind.startswith(prefix) else ""


def _attributes(event: HistoryEvent) -> Any:  # noqa: ANN401 -- of the four ends of an activity, or five of a child
    return getattr(event, event.WhichOneof("attributes") or "")


def _moment(time: Mapping[str, int] | None) -> datetime | None:
    """Parse a time in the SDK's format of markers."""
    if not time:
        return None
    return datetime.fromtimestamp(time["seconds"], UTC).replace(microsecond=time["nanos"] // 1000)
