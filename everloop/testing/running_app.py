"""Agents under test: a gateway, a worker, real servers, and a stand-in for the model."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import JsonValue, ValidationError
from pydantic_core import to_json
from temporalio.client import Client as TemporalClient

from everloop.agents.agent import Agent, Output
from everloop.agents.registry import AgentRegistry
from everloop.client import (
    Client,
    Content,
    Done,
    Event,
    Part,
    Question,
    Result,
    StatusChanged,
    ToolCallStarted,
    WaitTimeoutError,
)
from everloop.client.task_events import arguments_of
from everloop.runtime.redis import cancel
from everloop.testing.clock import ScheduleClock, skip_time
from everloop.testing.errors import TaskError, WorkerProcessError
from everloop.testing.in_process import NOTHING_ELSE, Stack, Worker, running_stack
from everloop.testing.model import StandIn

TIMEOUT = 60.0
"""Default timeout in seconds of the methods that wait."""

T = TypeVar("T")
Task = Result[Any] | str
"""A result of an earlier call, or a task id."""


@asynccontextmanager
async def running(
    agent: Agent[Output],
    /,
    *agents: Agent,
    model: StandIn | str | None = None,
    worker: Worker = "here",
    timeout: float = TIMEOUT,  # noqa: ASYNC109 -- of each call of the app
    settings: Mapping[str, str] = NOTHING_ELSE,
) -> AsyncGenerator["App[Output]"]:
    """Run agents in this process, on the Temporal and the Valkey of the test session.

    Args:
        agent: The default agent of requests.
        agents: Further agents: sub-agents and handoff targets that are named by id must be among them.
        model: A `Script`, `FunctionModel` or `Recording` in place of all models; or the name of a real model
            for agents that name none.
        worker: "here", where breakpoints and shared variables work; "process": in a copy of this process,
            which `App.kill_worker` can kill.
        timeout: Default timeout of the app's methods, in seconds.
        settings: Variables (EVERLOOP_…) that replace those of the environment.

    Raises:
        AgentsError: an agent or a setting is invalid.
        ServersError: Temporal and Valkey are not installed, or do not start.
        WorkerProcessError: the worker cannot run in a process of its own.
    """
    async with AsyncExitStack() as opened:
        stack = await opened.enter_async_context(running_stack((agent, *agents), model, worker, settings))
        app = App(stack, (agent, *agents), model if isinstance(model, StandIn) else None, timeout)
        opened.push_async_callback(app.close)
        yield app


class StartApp(Protocol):
    """The fixture `everloop_app`: it starts agents as `running` does and stops them after the test."""

    async def __call__(
        self,
        agent: Agent[Output],
        /,
        *agents: Agent,
        model: StandIn | str | None = None,
        worker: Worker = "here",
        timeout: float = TIMEOUT,  # noqa: ASYNC109 -- of each call of the app
        settings: Mapping[str, str] = NOTHING_ELSE,
    ) -> "App[Output]":
        """Start agents for a test; the arguments are those of `running`."""
        ...


class App(Generic[Output]):
    """Running agents and a client of them. `running` makes one.

    `Result.data` is an instance of the agent's `output` model, if it has one.
    """

    def __init__(self, stack: Stack, agents: Sequence[Agent], model: StandIn | None, timeout: float) -> None:
        self.url = stack.url
        """URL of the gateway."""
        self.temporal_ui = stack.servers.temporal_ui
        """URL of Temporal's web UI, while the test runs."""
        self._stack = stack
        self._agent = agents[0].id
        self._outputs = {agent.id: agent.output for agent in AgentRegistry(agents)}
        self._model = model
        self._timeout = timeout
        self._clients: dict[str, Client] = {}
        self._tasks: set[str] = set()
        self._clocks: dict[str, ScheduleClock] = {}

    @property
    def client(self) -> Client:
        """The client of the default agent."""
        return self.client_of(self._agent)

    def client_of(self, agent: str) -> Client:
        """Return the client of an agent, by its id."""
        if agent not in self._clients:
            self._clients[agent] = Client(self.url, agent=agent)
        return self._clients[agent]

    async def ask(  # noqa: PLR0913 -- all have names and defaults
        self,
        *content: Content,
        agent: str = "",
        context_id: str = "",
        task: Task = "",
        files: Sequence[str | Path | Part] = (),
        data: JsonValue = None,
        metadata: Mapping[str, JsonValue] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- the error says how the task stands
    ) -> Result[Output]:
        """Send a message and wait until the task ends or asks.

        Args:
            content: Texts and parts.
            agent: The id of an agent; empty: the default one.
            context_id: The conversation to continue; empty starts one.
            task: The task to send it to; empty starts one.
            files: Paths of files to attach, or parts.
            data: A JSON value to attach.
            metadata: Of the message.
            timeout: Seconds; None for the app's default.

        Raises:
            ScriptError: the stand-in has no reply to a request.
            TaskError: the timeout is over.
        """
        return await self._watched(
            self.client_of(agent or self._agent).send(
                *content,
                context_id=context_id,
                task_id=_id(task),
                files=files,
                data=data,
                metadata=metadata,
                timeout=timeout or self._timeout,
            )
        )

    async def start(
        self,
        *content: Content,
        agent: str = "",
        context_id: str = "",
        files: Sequence[str | Path | Part] = (),
        data: JsonValue = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> Result[Output]:
        """Send a message and return once its task exists; `wait` waits for it. Arguments as of `ask`.

        Raises:
            ScriptError: the stand-in has no reply to a request.
            TaskError: the timeout is over.
        """
        return await self._watched(
            self.client_of(agent or self._agent).send(
                *content,
                context_id=context_id,
                files=files,
                data=data,
                metadata=metadata,
                detach=True,
                timeout=self._timeout,
            )
        )

    async def wait(
        self,
        task: Task,
        *,
        call: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 -- as of ask
    ) -> Result[Output]:
        """Wait until a task ends or asks; with `call`, until it has called that tool.

        Raises:
            ScriptError: the stand-in has no reply to a request.
            TaskError: the timeout is over, or the task ended without such a call.
        """
        return await self._watched(self._wait(_id(task), call, timeout or self._timeout))

    async def answer(self, task: Task, value: JsonValue, *, question_id: str = "") -> Result[Output]:
        """Answer a question of a task, the oldest by default, and wait as `ask` does.

        Raises:
            ScriptError: the stand-in has no reply to a request.
            TaskError: the timeout is over.
        """
        client = self._client_for(_id(task))
        oldest = () if question_id else (await client.task(_id(task))).questions[:1]
        named = (
            oldest[0].id if oldest else question_id
        )  # a secret is only taken with the name of its question
        answering = client.answer(_id(task), value, question_id=named, timeout=self._timeout)
        return await self._watched(answering)

    async def approve(
        self, task: Task, *, approved: bool = True, note: str = "", question_id: str = ""
    ) -> Result[Output]:
        """Approve or reject a waiting call, and wait as `ask` does.

        Raises:
            ScriptError: the stand-in has no reply to a request.
            TaskError: the timeout is over.
        """
        client = self._client_for(_id(task))
        approving = client.approve(
            _id(task), question_id, approved=approved, note=note, timeout=self._timeout
        )
        return await self._watched(approving)

    async def cancel(self, task: Task) -> Result[Output]:
        """Cancel a task, and return it once it has ended.

        Raises:
            ClientError: the task does not exist, or has ended.
        """
        await self._client_for(_id(task)).cancel(_id(task))
        return await self.wait(task)

    async def kill_worker(self) -> None:
        """Kill the worker by SIGKILL, and start another one.

        Raises:
            WorkerProcessError: the worker runs in this process.
        """
        if not self._stack.process:
            raise WorkerProcessError(
                "the worker runs in the process of the test, which would be killed with it; give it one of "
                'its own: running(…, worker="process")'
            )
        await self._stack.process.kill()
        await self._stack.process.start()

    async def skip_time(self, duration: timedelta, *, task: Task = "", schedule: str = "") -> list[str]:
        """Skip time for a task, or for a schedule; by default for all tasks of this app.

        Timers fire: wall-clock limits, deadlines of questions, pauses before retries of tools. Models
        and tools take real time. A schedule, named by its id, starts the tasks that are due, and their
        ids are returned. Time passes for these tasks too, and the schedule's clock stays ahead.

        Raises:
            TaskError: a task is busy with a model or a tool, the schedule does not exist, it starts more than
                100 tasks in that time, or one of them does not start.
        """
        temporal = await TemporalClient.connect(self._stack.servers.temporal)
        if not schedule:
            await skip_time(temporal, {_id(task)} if task else self._tasks, duration)
            return []
        clock = self._clocks.setdefault(schedule, ScheduleClock(schedule))
        return await clock.skip(temporal, duration)

    async def close(self) -> None:
        """Close the clients. `running` does it."""
        for client in self._clients.values():
            await client.close()

    def _client_for(self, task_id: str) -> Client:
        return self.client_of(self._agent_of(task_id) or self._agent)

    def _agent_of(self, task_id: str) -> str:
        """Return the agent of a task; the task's id begins with the agent's."""
        return max((agent for agent in self._outputs if task_id.startswith(f"{agent}-")), key=len, default="")

    async def _wait(self, task_id: str, call: str, timeout: float) -> Result:  # noqa: ASYNC109 -- as of ask
        client = self._client_for(task_id)
        try:
            async with asyncio.timeout(timeout), aclosing(client.watch(task_id)) as events:
                is_first = True
                async for event in events:
                    if call and is_first and _has_called(now := await client.task(task_id), call):
                        return now  # before we looked, which no event tells
                    is_first = False
                    if _is_awaited(event, call):
                        return event.result if isinstance(event, Done) else await client.task(task_id)
        except TimeoutError:
            raise WaitTimeoutError("", await client.task(task_id)) from None
        ended = await client.task(task_id)
        if call and not _has_called(ended, call):
            raise TaskError(f"task {task_id} has ended without a call of {call!r}: {_described(ended)}")
        return ended

    async def _watched(self, work: Coroutine[Any, Any, Result]) -> Result[Output]:
        """Return the result of some work, unless the stand-in runs out of replies first."""
        working = asyncio.ensure_future(work)
        try:
            while not working.done():
                await asyncio.wait((working,), timeout=_LOOK)
                if self._model:
                    self._model.raise_problem()
            result = working.result()
        except WaitTimeoutError as error:
            raise TaskError(
                f"the task did not end in time, nor asked anything: {_described(error.result)}"
            ) from None
        finally:
            await cancel(working)
        if not result.id:
            return self._with_data(result)
        self._tasks.add(result.id)
        return self._with_data(await self._with_arguments(result))

    async def _with_arguments(self, result: Result) -> Result:
        """Add the arguments of all calls to a result; history has those from before the stream began."""
        if all(call.arguments is not None for call in result.tool_calls):
            return result
        made = {
            str(event.data.get("callId")): arguments_of(event.data.get("arguments"))
            async for event in self.client.events(result.id)
            if event.type == "toolCall"
        }
        calls = (replace(call, arguments=made.get(call.id, call.arguments)) for call in result.tool_calls)
        return replace(result, tool_calls=tuple(calls))

    def _with_data(self, result: Result) -> Result[Output]:
        """Parse a result's data as the agent's model; another agent's answer may not fit it."""
        output = self._outputs.get(self._agent_of(result.id))
        data: Any = result.data
        if output and data is not None:
            with suppress(ValidationError):
                data = output.model_validate_json(to_json(data))
        return replace(cast("Result[Output]", result), data=data)


_LOOK = 0.05
"""Seconds between two checks of the stand-in for requests without a reply."""


def _id(task: Task) -> str:
    return task.id if isinstance(task, Result) else task


def _is_awaited(event: Event, call: str) -> bool:
    if call:
        return isinstance(event, ToolCallStarted) and event.name == call
    is_waiting = isinstance(event, StatusChanged) and event.state.is_waiting
    return isinstance(event, Done | Question) or is_waiting


def _has_called(result: Result, tool: str) -> bool:
    return any(each.name == tool for each in result.tool_calls)


def _described(result: Result[Any]) -> str:
    """Describe the state of a task for an error message."""
    if not result.id:
        return "its message was not taken yet"
    calls = ", ".join(f"{call.name} ({call.outcome or 'running'})" for call in result.tool_calls) or "none"
    why = f": {result.error}" if result.error else ""
    return f"it is {result.state}{why}; tool calls: {calls}; answer so far: {result.text!r}"
