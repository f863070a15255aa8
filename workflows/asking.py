"""Showing the open questions of a task: to its client, and to the task that it works for."""

import asyncio
import contextlib

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows import announce, approvals
from workflows.contract import names
from workflows.contract.questions import SubAgentQuestions
from workflows.scope import TaskScope
from workflows.state import Phase

QUESTIONS_GO_UP = "questions_go_up"
"""Sub-agents that were in flight before this patch are asked where they work."""


class Asking:
    """Keeps what is shown of the questions in step with what is open."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._state = scope.state
        self._lock = asyncio.Lock()

    @property
    def is_shown(self) -> bool:
        """Whether the last status tells of exactly the open questions."""
        return self._state.status.questions == self._state.open_questions

    @property
    def has_news(self) -> bool:
        """Whether questions came up or were settled since the last status, and sub-agents have asked some.

        Where none has, questions are shown once all calls of a round have ended.
        """
        return self._state.has_relayed and not self.is_shown

    async def relay(self, ended: asyncio.Event) -> None:
        """Show what sub-agents ask, and hand them the answers, until the calls of a round have ended."""
        state = self._state
        while self.has_news or not ended.is_set():
            await workflow.wait_condition(lambda: ended.is_set() or bool(state.relayed) or self.has_news)
            for call_id in list(state.relayed):
                child = names.child_task_id(self._scope.ref.task_id, call_id)
                for answer in state.relayed.pop(call_id):
                    with contextlib.suppress(ApplicationError):  # it has ended meanwhile
                        await workflow.get_external_workflow_handle(child).signal(names.PEOPLE_ANSWER, answer)
            if self.has_news:
                await self.refresh()

    async def refresh(self) -> None:
        """Tell the client of the questions, or that the task works again, unless the last status does."""
        async with self._lock:
            if self.is_shown:
                return
            if self._state.questions:
                announce.enter(self._state, Phase.WAITING)
                await self.show()
            else:
                await self._go_on()

    async def show(self) -> None:
        """Tell the client, and the task that this one works for, what is open."""
        state = self._state
        approvals.set_deadlines(state.questions, workflow.now())
        questions = state.open_questions
        message = approvals.question_message(str(workflow.uuid4()), questions)
        status = state.change_status(
            approvals.waiting_state(questions),
            workflow.now(),
            message=message,
            received=state.take_heard(),
        )
        announce.index(status.state)
        announce.show(state)
        count = len(questions)
        await announce.publish(
            self._scope.ref, (status,), f"waits for {count} answer{'s' if count > 1 else ''}"
        )
        await self.tell_parent()

    async def tell_parent(self) -> None:
        """Let the task that this one works for ask its client in our place."""
        info = workflow.info()
        if info.parent is None or not workflow.patched(QUESTIONS_GO_UP):
            return
        call_id = info.workflow_id.removeprefix(names.child_task_id(info.parent.workflow_id, ""))
        asked = SubAgentQuestions(call_id=call_id, questions=self._state.open_questions)
        with contextlib.suppress(ApplicationError):  # it has ended, and cancels this task
            parent = workflow.get_external_workflow_handle(info.parent.workflow_id)
            await parent.signal(names.SUB_AGENT_ASKS, asked)

    async def _go_on(self) -> None:
        state = self._state
        announce.enter(state, Phase.TOOLS)
        announce.index(announce.TaskState.WORKING)
        status = announce.working(state, received=state.take_heard())
        await announce.publish(self._scope.ref, (status,), "goes on")
        await self.tell_parent()
