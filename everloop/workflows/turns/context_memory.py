"""The conversation of a context: recalled when a task begins, saved when it ends."""

from temporalio import workflow

from everloop.workflows import reporting
from everloop.workflows.contract import names
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.calls import (
    CompactConversationInput,
    LoadContextInput,
    SaveContextInput,
    SaveContextResult,
)
from everloop.workflows.contract.messages import TranscriptMessage
from everloop.workflows.contract.parts import shorten
from everloop.workflows.contract.ports import ContextPort
from everloop.workflows.contract.tasks import Fork
from everloop.workflows.scope import TaskScope, post_completion, short_call
from everloop.workflows.turns.model_turn import ModelTurn


class ContextMemory:
    """Recall of earlier tasks of the context. Sub-agents have only their request."""

    def __init__(self, scope: TaskScope, model: ModelTurn) -> None:
        self._scope = scope
        self._state = scope.state
        self._model = model
        self._is_long = False

    async def recall(self) -> None:
        """Begin the transcript with the earlier messages of the context; a fork has its history instead."""
        if fork := self._scope.task.fork:
            await self._begin_fork(fork)
            return
        if (spec := self._spec) is None or self._is_new_context:
            return
        loaded = await workflow.execute_activity_method(
            ContextPort.load_context,
            LoadContextInput(task=self._scope.ref, memory=spec),
            **short_call("recall the conversation"),
        )
        earlier: list[TranscriptMessage] = list(loaded.messages)
        self._state.recall(earlier)

    async def _begin_fork(self, fork: Fork) -> None:
        self._state.begin_fork(fork)
        await self._model.send_transcript(f"of {shorten(fork.task_id, reporting.SUMMARY_LENGTH)}")
        if not self._state.inbox:  # without a new message, no call would publish that the task works
            reporting.working(self._state, received=(self._scope.task.message,))

    @property
    def to_save(self) -> SaveContextInput | None:
        """Part of the transcript to save; None for nothing."""
        return self._to_save(spec) if (spec := self._spec) else None

    async def save(self) -> None:
        """Save the conversation, if no status of the task does."""
        if (spec := self._spec) is None:
            return
        saved = await self._model.with_transcript(
            lambda _: workflow.execute_activity_method(
                ContextPort.save_context, self._to_save(spec), **short_call("remember what was said")
            )
        )
        self.note(saved)

    def _to_save(self, spec: Memory) -> SaveContextInput:
        state = self._state
        return SaveContextInput(
            task=self._scope.ref,
            first=state.recalled,
            length=len(state.transcript),
            digest=state.expected_digest,
            memory=spec,
        )

    def note(self, saved: SaveContextResult | None) -> None:
        """Record the result of saving the conversation."""
        self._is_long = saved is not None and saved.is_long

    async def compact(self) -> None:
        """Sum up messages too old to be recalled, if there are any."""
        if self._is_long and (spec := self._spec):
            agent = self._scope.agent
            await workflow.execute_activity_method(
                ContextPort.compact_conversation,
                CompactConversationInput(task=self._scope.ref, memory=spec, model=agent.model),
                **post_completion(self._scope.queue(names.MODEL_QUEUE), "sum up the conversation"),
            )

    @property
    def _spec(self) -> Memory | None:
        return None if self._scope.task.depth else self._scope.agent.memory

    @property
    def _is_new_context(self) -> bool:
        """Whether the context has no earlier messages, because its client sent no context id."""
        ref = self._scope.ref
        return ref.context_id == names.derive_context_id(ref.task_id)
