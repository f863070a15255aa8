"""The A2A operations (1.0 §3.1), for every binding."""

from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)

from everloop.agents.agent import Agent
from everloop.agents.registry import AgentRegistry
from everloop.gateway.context import identity_of, viewer_of_view
from everloop.gateway.errors import TaskTooLargeError, UnavailableNowError
from everloop.gateway.operations.admission import Admission, Admitted, DirectAnswer
from everloop.gateway.operations.input_files import InputFiles
from everloop.gateway.operations.operation import (
    Event,
    OpenStreams,
    OperationCall,
    operation,
    stream_operation,
)
from everloop.gateway.operations.push import PushOperations
from everloop.gateway.operations.updates import UpdateTranslator
from everloop.gateway.requests.fields import check_id, read_history_length, read_list_request
from everloop.gateway.requests.incoming_messages import IDEMPOTENCY_KEY, IncomingMessage, read_message
from everloop.gateway.settings import GatewaySettings
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.snapshots import Snapshots, refuse_if_read_only
from everloop.gateway.tasks.streams import (
    EVENT_ID,
    LAST_EVENT_ID,
    EventId,
    TaskStreams,
    UntilEnd,
    UntilReply,
    UntilTakenIn,
    is_reached,
)
from everloop.gateway.tasks.task_steps import TaskSteps
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.runtime.protocol.a2a_tasks import left_out, to_direct_message, to_task
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, Snapshot, position_order
from everloop.stores.push.configs import first_position
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.tasks import TaskState

TAKE_WAIT = 2.0
"""Seconds that CancelTask waits for a worker to start a task that is still queued."""

ANSWER_WAIT = 2.0
"""Seconds that the stream of an answer waits for the task to continue before it begins."""

CANCEL_WAIT = 5.0
"""Seconds that CancelTask waits for the task to be canceled."""


@dataclass(frozen=True, kw_only=True)
class TaskHandler:
    """Serves tasks from the store, and sends changes to Temporal. Stores nothing itself.

    With its methods decorated it is the SDK's `RequestHandler`.
    """

    settings: GatewaySettings
    agents: AgentRegistry
    open_streams: OpenStreams
    views: TaskViews
    tasks: Tasks
    snapshots: Snapshots
    admission: Admission
    streams: TaskStreams
    reconciler: Reconciler
    files: InputFiles
    steps: TaskSteps
    push: PushOperations | None
    """None: this server sends no notifications."""

    extended_card: Callable[[Agent], pb.AgentCard]

    @operation
    async def on_message_send(
        self, params: pb.SendMessageRequest, call: OperationCall
    ) -> pb.Task | pb.Message:
        incoming, admitted = await self._take_in(params, call)
        if isinstance(admitted, DirectAnswer):
            return to_direct_message(admitted.message, admitted.context_id)
        snapshot = admitted.snapshot
        if not incoming.return_immediately:
            until = UntilReply(admitted.message_id, is_answer=admitted.is_answer)
            snapshot = await self._wait(snapshot, until, self.settings.blocking_timeout)
        complete = await self._complete(snapshot, call.held, incoming.history_length)
        return await self._task(complete, incoming.history_length)

    @stream_operation
    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, call: OperationCall
    ) -> AsyncGenerator[Event]:
        incoming, admitted = await self._take_in(params, call)
        history_length = incoming.history_length
        del params, incoming  # they may be large, and the stream lasts as long as its task
        if isinstance(admitted, DirectAnswer):
            yield to_direct_message(admitted.message, admitted.context_id)
            return
        until = UntilReply(admitted.message_id, is_answer=admitted.is_answer)
        after = await self._last_event_of(call, admitted.snapshot)
        snapshot = admitted.snapshot if after else await self._answered(admitted)
        async with aclosing(self._stream(snapshot, until, call, after, history_length)) as events:
            async for event in events:
                yield event

    @stream_operation
    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, call: OperationCall
    ) -> AsyncGenerator[Event]:
        snapshot = await self._find(params.id, "id", call)
        snapshot = await self.snapshots.revived(snapshot)
        state, after = snapshot.view.status.state, await self._last_event_of(call, snapshot)
        resumes = EventId.parse(call.header(LAST_EVENT_ID)) is not None
        if state.is_terminal and (is_reached(snapshot, after.position) if after else not resumes):
            raise UnsupportedOperationError(
                f"task {params.id!r} is {state} and publishes nothing more; read it with GetTask"
            )
        async with aclosing(self._stream(snapshot, UntilEnd(), call, after)) as events:
            async for event in events:
                yield event

    @operation
    async def on_get_task(self, params: pb.GetTaskRequest, call: OperationCall) -> pb.Task:
        history_length = read_history_length(params)
        snapshot = await self._find(params.id, "id", call)
        complete = await self.snapshots.complete(snapshot, call.held, history_length=history_length)
        task = await self._task(complete, history_length)
        if call.is_extended:
            steps = await self.steps.of(complete.view, snapshot.message_ids)
            if steps is not None:
                task.metadata.update({EVENTS_EXTENSION: {"steps": steps}})
        return task

    @operation
    async def on_list_tasks(self, params: pb.ListTasksRequest, call: OperationCall) -> pb.ListTasksResponse:
        query = read_list_request(params, call.viewer)
        page = await self.views.list_tasks(query)
        for view in page.views:
            is_open = not view.status.state.is_terminal
            if is_open and self.reconciler.is_due(view.status.at.timestamp()):
                self.reconciler.note_reading(view.task_id)
        tasks = [
            to_task(view, self.settings.url, include_artifacts=query.with_artifacts) for view in page.views
        ]
        for task in tasks:
            if task.id in page.left_out:
                task.metadata.update(left_out(page.left_out[task.id]))
        return pb.ListTasksResponse(
            tasks=tasks,
            next_page_token=page.next_page_token,
            page_size=query.page_size,
            total_size=page.total,
        )

    @operation
    async def on_cancel_task(self, params: pb.CancelTaskRequest, call: OperationCall) -> pb.Task:
        """Cancel a task. Repeating it returns the canceled task (A2A 1.0 §3.3.1: it is idempotent).

        In 0.3 an ended task cannot be canceled (§7.4).
        """
        snapshot = await self.snapshots.revived(await self._changeable(params.id, "id", call))
        if call.is_legacy:
            _refuse_if_ended(snapshot)
        task_id, is_open = snapshot.view.task_id, not snapshot.view.status.state.is_terminal
        # Temporal accepts the cancellation of a closed workflow without an error: check first.
        if is_open and await self.reconciler.reconcile(task_id):
            snapshot = await self._again(snapshot)
        if not snapshot.view.status.state.is_terminal:
            await self.tasks.cancel(task_id)
            snapshot = await self._canceled(await self._wait(snapshot, UntilEnd(), TAKE_WAIT))
        # The task may have ended in another way before the cancellation arrived.
        if snapshot.view.status.state is not TaskState.CANCELED:
            _refuse_if_ended(snapshot)
        return await self._task(await self._complete(snapshot, call.held))

    @operation
    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, call: OperationCall
    ) -> pb.TaskPushNotificationConfig:
        snapshot = await self._changeable(params.task_id, "taskId", call)
        acknowledged = first_position(snapshot)
        await self._push().check(params, snapshot.view.owner)
        return await self._push().create(
            snapshot.view, params, acknowledged=acknowledged, is_legacy=call.is_legacy
        )

    @operation
    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, call: OperationCall
    ) -> pb.TaskPushNotificationConfig:
        snapshot = await self._find(params.task_id, "taskId", call)
        return await self._push().get(snapshot.view.task_id, params.id)

    @operation
    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, call: OperationCall
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        await self._find(params.task_id, "taskId", call)
        return await self._push().list(params)

    @operation
    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, call: OperationCall
    ) -> None:
        snapshot = await self._find(params.task_id, "taskId", call)
        await self._push().delete(snapshot.view.task_id, params.id)

    @operation
    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, call: OperationCall
    ) -> pb.AgentCard:
        return self.extended_card(call.agent)

    async def _take_in(
        self, params: pb.SendMessageRequest, call: OperationCall
    ) -> tuple[IncomingMessage, Admitted | DirectAnswer]:
        """Send the message to a task, and set up the notifications that the client requests."""
        owner, key = call.caller.owner, call.header(IDEMPOTENCY_KEY)
        max_bytes = self.settings.max_message_bytes
        incoming = read_message(params, owner, call.agent, max_bytes=max_bytes, key=key)
        if incoming.push:
            if not incoming.is_new:
                await self._changeable(incoming.task_id, "message.taskId", call)
            task_id = "" if incoming.is_new else incoming.task_id
            await self._push().check(incoming.push, owner, task_id=task_id)
        admitted = await self.admission.take_in(incoming, call.viewer, identity_of(call.caller))
        if incoming.push and isinstance(admitted, Admitted):
            # After a crash before this, the client's retry does it.
            snapshot = admitted.snapshot
            acknowledged = await self._acknowledged(snapshot, is_new=incoming.is_new)
            await self._push().create(
                snapshot.view, incoming.push, acknowledged=acknowledged, is_legacy=call.is_legacy
            )
        return incoming, admitted

    def _push(self) -> PushOperations:
        if self.push is None:
            raise PushNotificationNotSupportedError
        return self.push

    async def _acknowledged(self, snapshot: Snapshot, *, is_new: bool) -> str:
        """Return the position after which requested notifications begin; the start for a new task."""
        if not is_new:
            return first_position(snapshot)
        is_all_there = await self.views.holds(snapshot.view.task_id, START)
        return START if is_all_there else first_position(replace(snapshot, position=START))

    async def _find(self, task_id: str, field: str, call: OperationCall) -> Snapshot:
        """Return a task that the caller may read."""
        return await self.snapshots.open(check_id(task_id, field), call.viewer)

    async def _changeable(self, task_id: str, field: str, call: OperationCall) -> Snapshot:
        """Return a task that the caller may read and change."""
        snapshot = await self._find(task_id, field, call)
        refuse_if_read_only(task_id)
        return snapshot

    async def _again(self, snapshot: Snapshot) -> Snapshot:
        """Return the current state of the task."""
        return await self.snapshots.take(snapshot.view.task_id, viewer_of_view(snapshot.view))

    async def _canceled(self, snapshot: Snapshot) -> Snapshot:
        """Return a task once it is canceled, or its current state after some seconds."""
        view = snapshot.view
        if view.status.state.is_terminal:
            return snapshot
        is_untaken = view.status.state is TaskState.SUBMITTED and not view.run_id
        if is_untaken and await self.reconciler.reconcile(view.task_id):
            return await self._again(snapshot)
        return await self._wait(snapshot, UntilEnd(), CANCEL_WAIT - TAKE_WAIT)

    async def _answered(self, admitted: Admitted) -> Snapshot:
        """Return the task, after it has processed the message if it was interrupted."""
        snapshot, until = admitted.snapshot, UntilTakenIn(admitted.message_id)
        if not admitted.is_answer or until.is_over(snapshot):
            return snapshot
        if not snapshot.view.status.state.is_interrupted:
            return snapshot
        return await self._wait(snapshot, until, ANSWER_WAIT)

    async def _wait(self, snapshot: Snapshot, until: UntilEnd, seconds: float) -> Snapshot:
        """Return the task when `until` is over, or its current state after some seconds."""
        async with aclosing(self.streams.follow(snapshot, until, seconds=seconds)) as items:
            async for _ in items:
                pass
        return await self._again(snapshot)

    async def _complete(
        self, snapshot: Snapshot, held: ExitStack, history_length: int | None = None
    ) -> Snapshot:
        """Return as much of a task as fits in memory now. The operation itself has already succeeded."""
        try:
            return await self.snapshots.complete(snapshot, held, history_length=history_length)
        except (TaskTooLargeError, UnavailableNowError):
            return snapshot

    async def _task(self, snapshot: Snapshot, history_length: int | None = None) -> pb.Task:
        """Return the task for its client, with the content of small files that it sent.

        The metadata mark a task without history and artifacts.
        """
        view = await self.files.with_contents(snapshot.view, history_length)
        task = to_task(view, self.settings.url, history_length=history_length)
        if not snapshot.is_complete:
            task.metadata.update(left_out(snapshot.size))
        return task

    async def _last_event_of(self, call: OperationCall, snapshot: Snapshot) -> EventId | None:
        """Return the event after which the client resumes; None if it needs the complete task first."""
        event_id = EventId.parse(call.header(LAST_EVENT_ID))
        if event_id and await self.views.holds(snapshot.view.task_id, event_id.position):
            return event_id
        return None

    async def _stream(
        self,
        snapshot: Snapshot,
        until: UntilEnd,
        call: OperationCall,
        after: EventId | None,
        history_length: int | None = None,
    ) -> AsyncGenerator[Event]:
        """Yield the task, then its updates. A new snapshot follows lost updates.

        A client that resumes after an event gets updates only. While an event is sent, its id is in the
        state of the call. Of several updates for one event, the last has its id: a client that missed
        one of them gets all of them again.
        """
        with ExitStack() as held:
            start = await self._complete(snapshot, held) if after else snapshot
            translator = self._translator(start, call, after)
            del start
        state, shown_at = call.context.state, START
        items = self.streams.follow(snapshot, until, after=after and after.position)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Snapshot):
                    with ExitStack() as held:  # until the client has received it
                        complete = await self._complete(item, held, history_length)
                        translator, shown_at = self._translator(complete, call), complete.position
                        task = await self._task(complete, history_length)
                        del complete  # here and below: a stream may stay open for days
                        state[EVENT_ID] = translator.event_id(shown_at)
                        yield task
                        del task
                    continue
                if position_order(item.position) <= position_order(shown_at):
                    continue  # included in a newer snapshot
                updates = [*translator.translate(item.event, item.position)]
                for left, update in zip(reversed(range(len(updates))), updates, strict=True):
                    state[EVENT_ID] = None if left else translator.event_id(item.position)
                    yield update

    def _translator(
        self, snapshot: Snapshot, call: OperationCall, after: EventId | None = None
    ) -> UpdateTranslator:
        return UpdateTranslator(snapshot.view, self.settings.url, extended=call.is_extended, after=after)


def _refuse_if_ended(snapshot: Snapshot) -> None:
    state = snapshot.view.status.state
    if state.is_terminal:
        raise TaskNotCancelableError(f"task {snapshot.view.task_id!r} is {state} already")
