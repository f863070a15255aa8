"""Synchronous client for code without asyncio: scripts, notebooks, threads."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from everloop.client.client import Client
from everloop.client.http import Token

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopThread:
    """Thread with an event loop, for code without one, or inside of a running one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = asyncio.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="everloop-client", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop, then finish the tasks that libraries have left in it, to avoid warnings."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._is_closed.wait())

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine."""
        if self.is_closed:
            coroutine.close()
            raise RuntimeError(
                "the client belongs to the process that this one was forked from; make another one "
                "after the fork"
                if self._is_forked
                else "the client is closed; make another one"
            )
        tasks, ended = list[asyncio.Task[_T | SystemExit | KeyboardInterrupt]](), threading.Event()

        def begin() -> None:
            tasks.append(self._loop.create_task(_caught(coroutine)))
            tasks[0].add_done_callback(lambda _: ended.set())

        def end() -> None:
            tasks[0].cancel()

        self._loop.call_soon_threadsafe(begin)
        try:
            ended.wait()
        except BaseException:  # Ctrl-C: cancel the coroutine in the thread
            self._loop.call_soon_threadsafe(end)
            ended.wait()
            raise
        result = tasks[0].result()
        if isinstance(result, SystemExit | KeyboardInterrupt):
            raise result
        return result

    @property
    def is_closed(self) -> bool:
        return self._is_forked or self._loop.is_closed()

    @property
    def _is_forked(self) -> bool:
        """Whether this is a forked process, which has the loop without its thread."""
        return os.getpid() != self._process

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._is_closed.set)
        self._thread.join()


async def _caught(coroutine: Coroutine[Any, Any, _T]) -> _T | SystemExit | KeyboardInterrupt:
    """Return an exit, such as one of a token function, for the caller: it would end the event loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        return error


def _wait(
    method: Callable[Concatenate[Client, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate["SyncClient", _P], _T]:
    """Return a method of `SyncClient` that waits for one of `Client`."""

    @wraps(method)
    def waiting(self: "SyncClient", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        thread, client = self._thread, self._client  # pyright: ignore[reportPrivateUsage] -- of the class below
        return thread.run(method(client, *args, **kwargs))

    return waiting


def _iterate(
    method: Callable[Concatenate[Client, _P], AsyncGenerator[_T]],
) -> Callable[Concatenate["SyncClient", _P], Generator[_T]]:
    """Return a method of `SyncClient` that yields the items of one of `Client`."""

    @wraps(method)
    def iterating(self: "SyncClient", /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[_T]:
        thread, client = self._thread, self._client  # pyright: ignore[reportPrivateUsage] -- of the class below
        items = method(client, *args, **kwargs)
        try:
            with suppress(StopAsyncIteration):
                while True:
                    yield thread.run(_next(items))
        finally:
            thread.run(items.aclose())

    return iterating


async def _next(items: AsyncGenerator[_T]) -> _T:
    return await anext(items)


class SyncClient:
    """`Client` for code without asyncio: the same methods, which block until they are done.

    Use `for` in place of `async for`. It works inside of a running loop, as in a notebook: all requests
    run in a thread of its own, which ends with `close()` or the `with` block. Create it after a fork
    (gunicorn with `preload`, Celery): a child has no such thread, and its calls raise `RuntimeError`.

    ```python
    with SyncClient("http://127.0.0.1:8080") as client:
        print(client.send("How warm is it in Rome?").text)
    ```
    """

    def __init__(  # noqa: PLR0913 -- all have names and defaults
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        agent: str | None = None,
        api_key: str = "",
        token: Token = "",
        cert: tuple[str | Path, str | Path] | None = None,
        ca: str | Path | None = None,
        hosts: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        reconnect: float = 60.0,
    ) -> None:
        self._client = Client(
            url,
            agent=agent,
            api_key=api_key,
            token=token,
            cert=cert,
            ca=ca,
            hosts=hosts,
            headers=headers,
            timeout=timeout,
            reconnect=reconnect,
        )
        self._thread = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the thread. Tasks go on."""
        if self._thread.is_closed:
            return
        try:
            self._thread.run(self._client.close())
        finally:
            self._thread.close()

    card = _wait(Client.card)
    agents = _wait(Client.agents)
    send = _wait(Client.send)
    stream = _iterate(Client.stream)
    answer = _wait(Client.answer)
    approve = _wait(Client.approve)
    watch = _iterate(Client.watch)
    task = _wait(Client.task)
    tasks = _iterate(Client.tasks)
    cancel = _wait(Client.cancel)
    artifacts = _wait(Client.artifacts)
    artifact = _wait(Client.artifact)
    read = _wait(Client.read)
    is_own = _wait(Client.is_own)
    download = _iterate(Client.download)
    save = _wait(Client.save)
    questions = _iterate(Client.questions)
    approvals = _iterate(Client.approvals)
    decide = _wait(Client.decide)
    stored_artifacts = _wait(Client.stored_artifacts)
    events = _iterate(Client.events)
    transcript = _wait(Client.transcript)
    usage = _wait(Client.usage)
    children = _wait(Client.children)
    fork = _wait(Client.fork)
    contexts = _iterate(Client.contexts)
    context = _wait(Client.context)
    change_context = _wait(Client.change_context)
    conversation = _iterate(Client.conversation)
    owner_artifacts = _iterate(Client.owner_artifacts)
    change_task = _wait(Client.change_task)
    delete_task = _wait(Client.delete_task)
    delete_artifact = _wait(Client.delete_artifact)
    delete_context = _wait(Client.delete_context)
    delete_owner = _wait(Client.delete_owner)
    deletion = _wait(Client.deletion)
    schedules = _iterate(Client.schedules)
    schedule = _wait(Client.schedule)
    create_schedule = _wait(Client.create_schedule)
    change_schedule = _wait(Client.change_schedule)
    pause_schedule = _wait(Client.pause_schedule)
    resume_schedule = _wait(Client.resume_schedule)
    run_schedule = _wait(Client.run_schedule)
    delete_schedule = _wait(Client.delete_schedule)
    operator_tasks = _iterate(Client.operator_tasks)
    operator_task = _wait(Client.operator_task)
    operator_resume = _wait(Client.operator_resume)
    operator_skip = _wait(Client.operator_skip)
    operator_reset = _wait(Client.operator_reset)
    operator_cancel = _wait(Client.operator_cancel)
    operator_approve = _wait(Client.operator_approve)
    operator_system = _wait(Client.operator_system)
