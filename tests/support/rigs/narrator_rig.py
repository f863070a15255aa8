"""A task that a test plays, and its narrator."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.models import Models
from everloop.activities.narrator.narrator import NarrationTerms, Narrator
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, StreamedEvent
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.calls import NarrateInput
from everloop.workflows.contract.events import Narrated, TaskEvent, ToolCalled
from everloop.workflows.contract.tasks import NarratorSpec, TaskRef, TaskState
from tests.stores.examples import said, status
from tests.support.rigs.model_rig import new_view, opened_models, provider_at
from tests.support.servers.scripted_openai import Script, ScriptedOpenAI
from tests.support.stores import database

QUICK = NarrationTerms(least_interval=0.01)


class Looked(TaskViews):
    """Views that count reads of the narrator, or fail them."""

    def __init__(self) -> None:
        super().__init__(database())
        self._looks = 0
        self._looked = asyncio.Condition()
        self.away = False

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        if wait == 0:
            async with self._looked:
                self._looks += 1
                self._looked.notify_all()
            if self.away:
                raise RedisConnectionError
        return await super().read(positions, wait=wait, limit=limit)

    async def looks(self, count: int) -> None:
        """Wait for this number of further reads."""
        wanted = self._looks + count
        async with self._looked:
            await self._looked.wait_for(lambda: self._looks >= wanted)


class NarratorRig:
    """A narrator whose narrations come into the stream, where the test waits for them."""

    def __init__(
        self,
        provider: ScriptedOpenAI,
        models: Models,
        views: TaskViews,
        terms: NarrationTerms,
    ) -> None:
        self.provider, self.views = provider, views
        self.task = TaskRef(task_id=str(uuid4()), run_id="run", context_id="c", owner="o", agent_id="agent")
        self.port = Narrator(models, views, ToolRecords(database()), terms=terms)
        self.call = NarrateInput(task=self.task, narrator=NarratorSpec(interval=0.01))
        self.environment = ActivityEnvironment()
        self.environment.info = replace(self.environment.info, scheduled_time=datetime.now(UTC))
        self._version = 1
        self._calls = 0

    async def begin(self) -> None:
        """Create a task that works."""
        await self.views.create(new_view(self.task).model_copy(update={"history": (said("m", "Sum it up"),)}))
        await self.publish(status(1))

    async def publish(self, *events: TaskEvent) -> None:
        await self.views.publish(self.task.task_id, self.task.run_id, events)

    async def change(self, state: TaskState) -> None:
        """Change the task's state."""
        self._version += 1
        await self.publish(status(self._version, state))

    async def call_tool(self, name: str) -> None:
        """Publish events that are worth a narration."""
        self._calls += 1
        await self.publish(ToolCalled(iteration=1, call_id=f"c{self._calls}", name=name, arguments="{}"))

    async def narrate(self) -> None:
        """Run one attempt of the activity to its end."""
        await self.environment.run(self.port.narrate, self.call)

    def start(self) -> "asyncio.Task[None]":
        """Start one attempt beside the test."""
        return asyncio.create_task(self.narrate())

    @asynccontextmanager
    async def narrating(self) -> AsyncGenerator[None]:
        """Run one attempt beside a block, at whose end the task completes."""
        running = self.start()
        yield
        await self.change(TaskState.COMPLETED)
        await running

    def after(self, start: str, calls: int) -> None:
        """Make the attempt follow one with these last heartbeat details."""
        carried = {"start": start, "calls": calls}
        self.environment.info = replace(self.environment.info, attempt=2, heartbeat_details=[carried])

    async def told(self) -> list[str]:
        """Return all narrations in the stream."""
        return [event.text for event in await self.events() if isinstance(event, Narrated)]

    async def events(self) -> Sequence[TaskEvent]:
        read = await self.views.read({self.task.task_id: START}, wait=0, limit=10_000)
        return [streamed.event for streamed in read]

    async def until_delivered(self, count: int) -> list[str]:
        """Wait for this number of narrations."""
        position = START
        told: list[str] = []
        while len(told) < count:
            for streamed in await self.views.read({self.task.task_id: position}, wait=1):
                position = streamed.position
                if isinstance(streamed.event, Narrated):
                    told.append(streamed.event.text)
        return told


@asynccontextmanager
async def narrator_rig(
    script: Script = (),
    views: TaskViews | None = None,
    *,
    terms: NarrationTerms = QUICK,
    begins: bool = True,
) -> AsyncGenerator[NarratorRig]:
    """Yield a rig whose task works, unless it starts later."""
    async with (
        ScriptedOpenAI(script) as provider,
        opened_models(provider_at(provider)) as models,
    ):
        rig = NarratorRig(provider, models, views or TaskViews(database()), terms)
        if begins:
            await rig.begin()
        yield rig
