"""Calls that ask, and delayed publishing of their statuses."""

import asyncio
from collections.abc import Callable

from temporalio import activity

from everloop.workflows.contract.calls import PublishInput, RunToolInput, SaveContextResult, ToolReply
from everloop.workflows.contract.messages import UserMessage
from everloop.workflows.contract.questions import Question, QuestionKind
from tests.support.fakes.ports import (
    CountingTools,
    FakePorts,
    RecordingPublisher,
    ScriptedModel,
    answer,
    asks,
)
from tests.workflows.conftest import user


def questions(**asked: dict[str, object]) -> Callable[[RunToolInput], ToolReply | None]:
    """Make the calls of these ids ask once each, before they give a result."""

    def reply(call: RunToolInput) -> ToolReply | None:
        fields = asked.get(call.call.id)
        if fields is None or call.answers:
            return None
        kind = fields.get("kind", QuestionKind.CONFIRMATION)
        return Question.model_validate(
            {"id": call.call.id, "kind": kind, "text": "May I?", "call": call.call, **fields}
        )

    return reply


def asking(*calls: str, **asked: dict[str, object]) -> FakePorts:
    """A model that asks for these calls, then answers."""
    tools = CountingTools(reply=questions(**asked))
    return FakePorts(ScriptedModel(asks(*((call, "x") for call in calls)), answer("done")), tools)


def naming(text: str, question: str) -> UserMessage:
    return user(text).model_copy(update={"metadata": {"question": question}})


class HeldUp(RecordingPublisher):
    """Delays the statuses of the client's task until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.go_on = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def publish(self, call: PublishInput) -> SaveContextResult | None:
        if "/" not in call.task.task_id:
            self.held.set()
            await self.go_on.wait()
        return await super().publish(call)
