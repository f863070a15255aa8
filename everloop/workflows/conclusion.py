"""The end of a task: its last messages, its last status, and follow-ups."""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from everloop.workflows import reporting
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import AfterCompletionInput, PublishInput, SaveContextResult
from everloop.workflows.contract.events import FINAL_ATTEMPT, RESPONSE_ARTIFACT, ArtifactChunk, StatusChanged
from everloop.workflows.contract.messages import AgentMessage, DataPart, TextPart, answer_part
from everloop.workflows.contract.ports import AgentPort, PublishPort
from everloop.workflows.contract.tasks import TaskRef, TaskState
from everloop.workflows.loop import Loop
from everloop.workflows.scope import TaskScope, post_completion, publish
from everloop.workflows.state import Phase

MAX_RESENDS = 5
"""How often the transcript may get lost, in 15 seconds, before a task ends without its conversation being
kept."""

Result = TypeVar("Result")


class Conclusion:
    """Ends a task once. `ref` names the agent at its start, by which clients address it."""

    def __init__(self, ref: TaskRef, scope: TaskScope, loop: Loop) -> None:
        self._ref = ref
        self._scope = scope
        self._state = scope.state
        self._loop = loop

    async def end(self, outcome: TaskState, message: AgentMessage | None, reason: str) -> None:
        """Refuse further messages, then publish the remaining events and the last status.

        From here on the outcome is final: a cancellation that arrives now is too late.
        """
        self._state.phase = Phase.DONE
        self._state.questions.clear()
        events = self._last_events(outcome, message)
        reporting.update_details(self._state)
        await _to_the_end(self._publish_last(outcome, events))
        self._state.is_routed = True
        reporting.index(self._state, outcome)
        answer = self._state.answer.text if self._state.answer else ""
        await self.follow_up(outcome, answer, reason)
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _publish_last(
        self, outcome: TaskState, events: tuple[StatusChanged | ArtifactChunk, ...]
    ) -> None:
        memory = self._loop.memory
        keeps = outcome is TaskState.COMPLETED
        call = PublishInput(
            task=self._ref,
            events=events,
            opening=reporting.opening(self._ref, self._scope.task) if self._scope.has_hidden_task else None,
        )

        def publishing(resends: int) -> Awaitable[SaveContextResult | None]:
            # If the cache keeps losing the transcript, the conversation is not saved, but the task ends.
            keep = memory.to_save if keeps and resends < MAX_RESENDS else None
            # Not a local activity: that runs before its input is durable, so that after a crash, or with a
            # new message, the task could end differently from the status that clients received.
            last = call.model_copy(update={"remember": keep})
            return workflow.execute_activity_method(PublishPort.publish, last, **publish("last status"))

        memory.note(await self._loop.model.with_transcript(publishing))

    async def follow_up(self, outcome: TaskState, answer: str, reason: str = "") -> None:
        """Run best-effort follow-ups. Failures are ignored."""
        await _to_the_end(self._follow_up(outcome, answer, reason))

    async def _follow_up(self, outcome: TaskState, answer: str, reason: str) -> None:
        state, agent = self._state, self._scope.agent
        with contextlib.suppress(ActivityError):
            if {"after_completion", "on_error"} & set(agent.hooks):
                ended = AfterCompletionInput(
                    task=self._scope.ref,
                    state=outcome,
                    iterations=state.iteration,
                    usage=state.usage,
                    answer=answer,
                    reason=reason,
                    identity=self._scope.task.identity,
                )
                queue = self._scope.queue(names.TOOLS_QUEUE)
                await workflow.execute_activity_method(
                    AgentPort.after_completion, ended, **post_completion(queue, "tell the plugins")
                )
        with contextlib.suppress(ActivityError):
            await self._loop.memory.compact()

    def _last_events(
        self, outcome: TaskState, message: AgentMessage | None
    ) -> tuple[StatusChanged | ArtifactChunk, ...]:
        """Return the answer, unless it is already published, unpublished messages, and the end."""
        state, at = self._state, workflow.now()
        events: list[ArtifactChunk] = []
        if state.answer and not state.answer.is_published:
            part = answer_part(state.answer.text, is_data=state.is_data)
            events.append(_complete_response(part, position=len(state.transcript) - 1))
        if state.interim:
            interim = reporting.agent_message(state.interim)
            state.change_status(TaskState.WORKING, at, message=interim)
        received = (*state.take_unpublished(), *state.take_inbox())
        state.change_status(outcome, at, message=message, received=received)
        return (*events, *state.outbox)


async def _to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end, even if the task is cancelled meanwhile."""
    working = asyncio.create_task(work)
    while not working.done():
        with contextlib.suppress(asyncio.CancelledError):
            await workflow.wait([working])
    return working.result()


def _complete_response(part: TextPart | DataPart, *, position: int) -> ArtifactChunk:
    """Return the answer as a single chunk; a view that has it complete drops this."""
    return ArtifactChunk(
        artifact_id=RESPONSE_ARTIFACT,
        name=RESPONSE_ARTIFACT,
        position=position,
        attempt=FINAL_ATTEMPT,
        index=0,
        part=part,
        last_chunk=True,
    )
