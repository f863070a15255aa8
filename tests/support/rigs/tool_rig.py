"""An agent whose tool calls run as activities, attempt by attempt."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.approval_policies import phase_key
from everloop.activities.tools.tool_call import AgentTools
from everloop.agents.agent import Agent, AgentApproval
from everloop.agents.hooks import HookContext, NeedsApproval, Veto
from everloop.agents.plugins import Plugin, tools
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool, tool
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.stores.scripts import Lease
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import Claim, ToolRecords, ToolResults
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.questions import Answer, Question, answer_with
from everloop.workflows.contract.tasks import TaskRef
from tests.support.stores import database, new_artifacts

Decision = Callable[[Question], Answer]
"""The answer to the question of a test."""

yes: Decision = partial(answer_with, value=True, by="user")
no: Decision = partial(answer_with, value=False, by="user")

_START, _EPOCH = datetime(2026, 11, 21, tzinfo=UTC), datetime.fromtimestamp(0, UTC)


class ToolRig:
    """Runs the tools of a test. An attempt gets the heartbeat details of the one before."""

    def __init__(  # noqa: PLR0913 -- what a test may put in place, each by its name
        self,
        *offered: Tool,
        plugins: Sequence[Plugin] = (),
        needs_approval: AgentApproval = False,
        records: ToolRecords | None = None,
        secrets: Secrets | None = None,
        views: TaskViews | None = None,
        artifacts: Artifacts | None = None,
        captures_content: bool = False,
        cached: ToolResults | None = None,
    ) -> None:
        agent = Agent(
            id="agent",
            name="Agent",
            description="",
            plugins=[tools(*offered), *plugins],
            needs_approval=needs_approval,
        )
        self.views, self.transcripts = views or TaskViews(database()), Transcripts(database())
        self.records, self.secrets = records or ToolRecords(database()), secrets or Secrets(database())
        self.agents = AgentRegistry([agent])
        self.artifacts = artifacts or new_artifacts(self.views)
        stores = (self.views, self.transcripts, self.records, self.secrets, self.artifacts)
        self.port = AgentTools(self.agents, *stores, captures_content=captures_content, cached=cached)
        self.task_id = str(uuid4())
        self.attempt = 0
        self.ahead = timedelta()
        """The offset of Temporal's clock."""
        self._details: Sequence[Any] = ()

    @property
    def task(self) -> TaskRef:
        return TaskRef(task_id=self.task_id, run_id="run", context_id="c", owner="owner", agent_id="agent")

    def call(
        self, name: str, arguments: str = "{}", *answers: Answer, call_id: str = "call", wait: float = 120
    ) -> RunToolInput:
        call = ToolCall(id=call_id, name=name, arguments=arguments)
        return RunToolInput(task=self.task, call=call, position=3, timeout=wait, answers=answers)

    async def quick_call(self, call: RunToolInput) -> ToolReply:
        """Run a call as a local activity, on a worker whose clock is far ahead."""
        environment = ActivityEnvironment()
        ahead = _START + timedelta(days=1)
        environment.info = replace(
            environment.info, is_local=True, scheduled_time=ahead, current_attempt_scheduled_time=ahead
        )
        run = call.model_copy(update={"scheduled": _START + timedelta(seconds=self.attempt + 0.5)})
        return await environment.run(self.port.run_tool, run)

    async def attempt_call(self, call: RunToolInput) -> ToolReply:
        """Run the next attempt of an activity."""
        self.attempt += 1
        environment, start = ActivityEnvironment(), _START + self.ahead
        environment.info = replace(
            environment.info,
            attempt=self.attempt,
            workflow_run_id=call.task.run_id,
            scheduled_time=start + timedelta(seconds=1),
            current_attempt_scheduled_time=start + timedelta(seconds=self.attempt),
            heartbeat_details=self._details,
        )
        environment.on_heartbeat = self._keep
        return await environment.run(self.port.run_tool, call)

    async def attempts(self, call: RunToolInput) -> tuple[list[ApplicationError], ToolReply]:
        """Run attempts in sequence, as Temporal does; return the failures and the end."""
        failed: list[ApplicationError] = []
        while True:
            try:
                return failed, await self.attempt_call(call)
            except ApplicationError as error:
                failed.append(error)

    async def run(self, call: RunToolInput) -> ToolMessage:
        """Run the first attempt of an activity, and return its result."""
        reply = await self._first(call)
        assert isinstance(reply, ToolMessage)
        return reply

    async def ask(self, call: RunToolInput) -> Question:
        """Run the first attempt of an activity, and return its question."""
        reply = await self._first(call)
        assert isinstance(reply, Question)
        return reply

    async def supply(self, name: str, secret: JsonValue) -> None:
        """Supply a secret that a tool has asked for."""
        await self.secrets.put(self.task_id, name, secret)
        await self.secrets.accept(self.task_id, name, name)

    async def lose(self, call: RunToolInput) -> Claim:
        """Start an attempt at a call, and lose it at once with its worker."""
        return await self.records.claim(self._lease(call), seconds=0)

    async def take_for_lost(self, call: RunToolInput) -> None:
        """Expire the lease of the running attempt, as if it were suspended."""
        await self.records.revoke(self._lease(call))

    def _lease(self, call: RunToolInput) -> Lease:
        # The claim of the first attempt.
        at = (_START + self.ahead + timedelta(seconds=1) - _EPOCH) // timedelta(microseconds=1)
        order = f"{at}/{call.task.run_id}/0/1"
        return Lease(self.task_id, phase_key(call.call, len(call.answers)), uuid4().hex, order)

    async def events(self) -> list[TaskEvent]:
        return [streamed.event for streamed in await self.views.read({self.task_id: START}, wait=0)]

    async def _first(self, call: RunToolInput) -> ToolReply:
        self.attempt, self._details = 0, ()
        return await self.attempt_call(call)

    def _keep(self, *details: object) -> None:
        self._details = details


def unkeyed(question_id: str) -> str:
    """Return the id of a question without the digest of its call: `call.1` is the second of `call`."""
    return re.sub(r"^call-[0-9a-f]{8}", "call", question_id)


ADA = '{"to": "Ada"}'


class Before(Plugin):
    """A plugin that changes each call by a function."""

    decide: Callable[[ToolCall], ToolCall | Veto | NeedsApproval | None]

    async def before_tool(
        self, context: HookContext, call: ToolCall
    ) -> ToolCall | Veto | NeedsApproval | None:
        return self.decide(call)


class After(Plugin):
    """A plugin that changes each result by a function, and records errors."""

    decide: Callable[[ToolMessage], ToolMessage | Veto | None]
    errors: Sequence[str] = ()

    async def after_tool(
        self, context: HookContext, call: ToolCall, result: ToolMessage
    ) -> ToolMessage | Veto | None:
        return self.decide(result)

    async def on_error(self, context: HookContext, error: str) -> None:
        self.errors = [*self.errors, error]


def before(decide: Callable[[ToolCall], ToolCall | Veto | NeedsApproval | None]) -> Before:
    plugin = Before()
    plugin.decide = decide
    return plugin


def after(decide: Callable[[ToolMessage], ToolMessage | Veto | None]) -> After:
    plugin = After()
    plugin.decide = decide
    return plugin


def to(*names: str) -> Before:
    """Return a plugin that puts another receiver into each call; the next name in each question."""
    left = [*names]
    return before(
        lambda call: call.model_copy(
            update={"arguments": json.dumps({"to": left.pop(0) if len(left) > 1 else left[0]})}
        )
    )


def fails(_: object) -> None:
    raise KeyError("rules")


def send_tool(sent: list[str], **settings: bool) -> Tool:
    """Return the tool `send`, which records its receivers."""

    @tool(needs_approval=settings.get("needs_approval", False), idempotent=settings.get("idempotent", False))
    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    return send


class Post(ToolRig):
    """The tool `send` under plugins, and its receivers."""

    def __init__(self, *plugins: Plugin, **settings: bool) -> None:
        self.sent: list[str] = []
        super().__init__(send_tool(self.sent, **settings), plugins=plugins)

    def send(self, *answers: Answer, **fields: object) -> RunToolInput:
        return self.call("send", ADA, *answers).model_copy(update=fields)
