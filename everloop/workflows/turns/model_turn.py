"""Model calls, with fallback to other models, and compaction of long prompts."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from everloop.workflows import reporting
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.agent_settings import Compaction
from everloop.workflows.contract.calls import (
    BeforeRequestInput,
    CallModelInput,
    CompactContextInput,
    StoreTranscriptInput,
    TranscriptCallInput,
)
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SpokenMessage,
    SummaryMessage,
    TextPart,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
    measure,
)
from everloop.workflows.contract.ports import AgentPort, ModelPort, TranscriptPort
from everloop.workflows.contract.tasks import AgentSpec
from everloop.workflows.scope import TaskScope, model_call, parked, plugin_call, short_call
from everloop.workflows.state import Phase
from everloop.workflows.task_limits import (
    TaskStoppedError,
    failure_text,
    failure_type,
    invalid_output,
    stop_if_cancelled,
)

RESEND_CHUNK_BYTES = 900_000
"""Approximate size of a chunk of the transcript that is sent again; a payload may have 2 MB."""

RESEND_PAUSES = tuple(timedelta(seconds=seconds) for seconds in (0, 1, 2, 4, 8, 16, 32, 60, 60, 60))
"""Pauses before each resend of a lost transcript; the task fails after the last.

A Redis that keeps failing over has four minutes. More would be expensive: each resend adds the transcript to
the history."""

LEAST_SHARE = 0.25
"""Minimum share of a prompt over its budget to remove: less would soon have to be repeated."""

REPAIRS = 1
"""Retries of an answer that does not match the agent's output model, with tools in between."""

COME_BACK = timedelta(seconds=60)
"""Time with the fallback model in place of an unavailable one; after that the first one is tried again."""

MODEL_HOOKS = frozenset({"before_model_call", "after_model_call"})
"""Hooks that receive the usage of the task."""

_OTHER_MODEL_HELPS = frozenset(
    {failures.MODEL_UNAVAILABLE, failures.MODEL_REFUSED, failures.CONTEXT_TOO_LONG}
)
_OPERATOR_HELPS = frozenset({failures.MODEL_UNAVAILABLE, failures.MODEL_REFUSED})

Reply = TypeVar("Reply")


class ModelTurn:
    """Gets the next reply of the model, with retries, fallbacks and compaction."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._state = scope.state
        self._warning = ""
        """Published with the next call."""

    async def ask(self) -> AssistantMessage:
        """Call the model; an answer that a newer message of the client overtook becomes interim.

        While an answer waits for its artifact, the reply has to write it.

        Raises:
            ActivityError: no model can answer, or the task was cancelled.
            TaskStoppedError: the reply ended in a way that fails the task; its cost is counted.
        """
        state = self._state
        reporting.enter(state, Phase.MODEL)
        if state.come_back_at and workflow.now() >= state.come_back_at:
            state.come_back()
        if is_over_budget(self._agent, state.prompt_tokens):
            await self._compact(least=LEAST_SHARE)
        screened = await self._screen()
        if isinstance(screened, str):
            return AssistantMessage(closing=screened, rejects=True)
        received = state.take_inbox(screened)
        if received:
            state.take_back_answer()
        reporting.queue_messages(state, received)
        reply = await self._reply()
        state.fold_reply(reply)
        stop_if_cancelled()
        if reply.fails:
            raise TaskStoppedError(reply.reason, reply.closing)
        return reply

    def refuse(self, reply: AssistantMessage) -> None:
        """Refuse a reply, with the reason for the model, so that it replies again.

        Raises:
            TaskStoppedError: the answer does not match the output model for the second time.
        """
        self._state.add_refusal(reply)
        if self._state.invalid_answers > REPAIRS:
            raise invalid_output(self._agent, reply.refused)

    async def reveal_task(self) -> None:
        """Make the task visible to the client, if it was hidden."""
        if self._scope.has_hidden_task:
            await reporting.open_task(self._scope)
            self._state.is_routed = True

    async def with_transcript(self, call: Callable[[int], Awaitable[Reply]]) -> Reply:
        """Call, and resend the transcript each time its cache is lost; `call` gets the number of resends."""
        for resends, pause in enumerate(RESEND_PAUSES):
            try:
                return await call(resends)
            except ActivityError as error:
                if failure_type(error) != failures.TRANSCRIPT_MISSING:
                    raise
                if pause:  # a call that fails may have hidden that the task is cancelled
                    with contextlib.suppress(TimeoutError):
                        await workflow.wait_condition(_is_cancelled, timeout=pause)
                await self.send_transcript("sent again")
        return await call(len(RESEND_PAUSES))

    async def send_transcript(self, why: str) -> None:
        """Fill the cache; each message of the transcript enters history once more."""
        start = 0
        for messages in chunked(self._state.transcript):
            await workflow.execute_activity_method(
                TranscriptPort.store_transcript,
                StoreTranscriptInput(task=self._scope.ref, start=start, messages=messages),
                **short_call(f"transcript {start}-{start + len(messages) - 1} {why}"),
            )
            start += len(messages)
        self._state.cached = self._state.resent = start

    @property
    def _agent(self) -> AgentSpec:
        return self._scope.agent

    @property
    def _queue(self) -> str | None:
        return self._scope.queue(names.MODEL_QUEUE)

    @property
    def _models(self) -> tuple[str | None, ...]:
        return (self._agent.model, *self._agent.fallback_models)

    @property
    def _model(self) -> str | None:
        """The requested model; None for the worker's default."""
        return self._models[self._state.model_index]

    @property
    def _has_fallback(self) -> bool:
        return self._state.model_index + 1 < len(self._models)

    async def _screen(self) -> list[UserMessage] | str:
        """Run plugins on the client's messages; return the messages for the model.

        A refused later message becomes the refusal and its reason. A returned text is why the task may
        not begin.
        """
        state, screened = self._state, list[UserMessage]()
        while "before_request" in self._agent.hooks and len(screened) < len(state.inbox):
            message = state.inbox[len(screened)]
            screening = await workflow.execute_activity_method(
                AgentPort.before_request,
                BeforeRequestInput(
                    task=self._scope.ref, messages=(message,), identity=self._scope.task.identity
                ),
                **plugin_call(self._scope.queue(names.TOOLS_QUEUE), "plugins look at a message"),
            )
            stop_if_cancelled()
            if screening.refused and not screened and len(state.transcript) == state.recalled:
                state.unpublished.extend(state.inbox)
                state.inbox.clear()
                return screening.refused
            notice = TextPart(text=f"[A message of the user was refused: {screening.refused}]")
            refused = message.model_copy(update={"parts": (notice,)})
            screened.append(refused if screening.refused else screening.messages[0])
        return screened

    async def _reply(self) -> AssistantMessage:
        """Call until there is a reply: compact once, then use the other models, then wait for an operator."""
        may_compact = True
        while True:
            try:
                return await self._call()
            except ActivityError as error:
                stop_if_cancelled()
                self._state.tries += 1
                failure = failure_type(error)
                if failure == failures.CONTEXT_TOO_LONG and may_compact and await self._compact():
                    may_compact = False
                    continue
                if failure in _OTHER_MODEL_HELPS and self._has_fallback:
                    self._fall_back(error)
                elif failure in _OPERATOR_HELPS and self._agent.on_model_failure == "wait":
                    await self._wait_for_operator(failure_text(error))
                else:
                    raise
                may_compact = True

    async def _call(self) -> AssistantMessage:
        warning, self._warning = self._warning, ""

        async def call(resends: int) -> AssistantMessage:
            stop_if_cancelled()  # may have been hidden by the call before, whose transcript was lost
            # A run that had to send its transcript again may follow one that has ended (Reset). The view may
            # still have the final status of that one.
            if resends and not self._state.outbox:
                reporting.working(self._state)
            with self._scope.outbox.carried() as statuses:
                return await workflow.execute_activity_method(
                    ModelPort.call_model,
                    self._model_input(statuses, warning),
                    **model_call(
                        self._queue,
                        reporting.model_summary(self._state, self._model, self._agent.settings),
                    ),
                )

        return await self.with_transcript(call)

    def _model_input(self, statuses: tuple[StatusChanged, ...], warning: str) -> CallModelInput:
        state = self._state
        return CallModelInput(
            **dict(self._transcript_call()),
            version=state.version,
            statuses=tuple(_without(state.new_messages, status) for status in statuses),
            tries=state.tries,
            warning=warning,
            needs_price=self._agent.max_cost is not None,
            tool=self._agent.artifact_tool if state.answer else None,
            routing=self._scope.has_hidden_task,
            usage=state.usage if MODEL_HOOKS & set(self._agent.hooks) else None,
            last=state.last_call,
        )

    def _transcript_call(self) -> TranscriptCallInput:
        state = self._state
        return TranscriptCallInput(
            task=self._scope.ref,
            iteration=state.iteration,
            model=self._model,
            length=len(state.transcript),
            digest=state.expected_digest,
            new=state.new_messages,
            previous_run=state.previous_run,
            settings=self._agent.settings,
            has_fallback=self._has_fallback,
        )

    async def _compact(self, *, least: float = 0) -> bool:
        """Compact the prompt by at least a share of it; return whether anything was removed."""
        state, spec = self._state, self._agent.compaction
        end = find_end(state.transcript, first=state.first, least=least)
        if spec is None or end is None:
            return False
        state.fold_summary(await self._summary(spec, end))
        stop_if_cancelled()
        return True

    async def _summary(self, spec: Compaction, end: int) -> SummaryMessage:
        """Request the summary of the messages up to `end`, with fallback to another model.

        Without any model the task goes on without a summary, unless it has to wait for an operator
        then.
        """
        state, waits = self._state, self._agent.on_model_failure == "wait"
        line = f"iteration {state.iteration} · {spec.strategy} for messages 1-{end - 1}"

        async def call(_: int) -> SummaryMessage:
            stop_if_cancelled()
            return await workflow.execute_activity_method(
                ModelPort.compact_context,
                CompactContextInput(
                    **dict(self._transcript_call()),
                    first=state.first,
                    end=end,
                    compaction=spec,
                    waits=waits,
                ),
                **model_call(self._queue, line),
            )

        while True:
            try:
                return await self.with_transcript(call)
            except ActivityError as error:
                stop_if_cancelled()
                if failure_type(error) != failures.MODEL_UNAVAILABLE or not (self._has_fallback or waits):
                    raise
                if self._has_fallback:
                    self._fall_back(error)
                else:
                    await self._wait_for_operator(failure_text(error))

    def _fall_back(self, error: ActivityError) -> None:
        """Switch to the next model, and warn subscribers. A model that refused is not called again."""
        is_away = failure_type(error) == failures.MODEL_UNAVAILABLE
        self._state.fall_back(workflow.now() + COME_BACK if is_away else None)
        self._warning = f"{failure_text(error)}; the task goes on with model {self._model!r}"

    async def _wait_for_operator(self, reason: str) -> None:
        """Wait for the signal `resume`; the next call publishes that the task works again."""
        state = self._state
        await self.reveal_task()
        state.waits_for_resume = reason
        reporting.enter(state, Phase.WAITING)
        text = f"waiting for an operator, who can resume the task: {reason}"
        message = reporting.agent_message(text)
        reporting.working(state, message)
        await reporting.publish(self._scope, "waits for the signal resume")
        with parked():
            await workflow.wait_condition(lambda: not state.waits_for_resume)
        state.come_back(to=0)
        reporting.enter(state, Phase.MODEL)
        reporting.working(state, resumed="operator")


def _is_cancelled() -> bool:
    return workflow.cancellation_reason() is not None


def _without(sent: tuple[UserMessage, ...], status: StatusChanged) -> StatusChanged:
    """Reduce messages that the same call sends as new to their ids; the activity restores them."""
    received = (UserMessage(message_id=m.message_id, parts=()) if m in sent else m for m in status.received)
    return status.model_copy(update={"received": tuple(received)})


def chunked(messages: list[TranscriptMessage]) -> list[tuple[TranscriptMessage, ...]]:
    """Cut a transcript into chunks under `RESEND_CHUNK_BYTES`; a larger message is a chunk of its own."""
    chunks: list[list[TranscriptMessage]] = []
    room = 0
    for message in messages:
        size = measure(message)
        if size > room or not chunks:
            chunks.append([])
            room = RESEND_CHUNK_BYTES
        chunks[-1].append(message)
        room -= size
    return [tuple(chunk) for chunk in chunks]


# Selection of old messages for compaction.


def is_over_budget(agent: AgentSpec, prompt_tokens: int) -> bool:
    """Return True if the next prompt is about as long as the agent allows."""
    budget = agent.compaction and agent.compaction.prompt_tokens
    return budget is not None and prompt_tokens >= budget


def find_end(transcript: Sequence[TranscriptMessage], *, first: int = 0, least: float = 0) -> int | None:
    """Return the `SummaryMessage.end` that removes about the older half of a prompt.

    The task's first message and the last ones stay, and no result is separated from its call. None:
    nothing can be removed, or less than the share `least`.
    """
    ends = (message.end for message in transcript if isinstance(message, SummaryMessage))
    start = max(ends, default=first + 1)
    sizes = [measure(message) if isinstance(message, SpokenMessage) else 0 for message in transcript]
    total = sum(sizes[start:])
    taken, found = 0, None
    for end in range(start + 1, len(transcript)):
        taken += sizes[end - 1]
        if _may_come_first(transcript[end]):
            found = end if taken >= least * total else None
            if taken >= total / 2:
                break
    return found


def _may_come_first(message: TranscriptMessage) -> bool:
    """Return True if a prompt may begin with this message; providers reject a result without its call."""
    return isinstance(message, SpokenMessage) and not isinstance(message, ToolMessage)
