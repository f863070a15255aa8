"""Exceptions of user code are an `Exception` outside of its boundary, and end no event loop."""

import asyncio
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

import pytest

from everloop.runtime.user_code import (
    UserCodeError,
    error_kind,
    error_text,
    inner_errors,
    translate_base_exceptions,
)


class PanicError(BaseException):
    """Of the kind that libraries in Rust raise."""


OTHERS = [
    (SystemExit(2), "SystemExit: 2"),
    (KeyboardInterrupt(), "KeyboardInterrupt: "),
    (PanicError("out of bounds"), "PanicError: out of bounds"),
    (StopIteration(1), "StopIteration: 1"),
    (asyncio.CancelledError(), "CancelledError: something that it called was cancelled"),
    (BaseExceptionGroup("all", [SystemExit(2)]), "SystemExit: 2"),
]

of_each = pytest.mark.parametrize(("raised", "told"), OTHERS, ids=lambda each: type(each).__name__)


async def fail(error: BaseException) -> NoReturn:
    raise error


async def in_a_task(error: BaseException) -> None:
    await asyncio.create_task(fail(error))


async def in_tasks(error: BaseException) -> None:
    await asyncio.gather(fail(error), asyncio.sleep(0))


async def in_a_task_group(error: BaseException) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail(error))


async def in_a_task_of_a_task(error: BaseException) -> None:
    await asyncio.create_task(in_tasks(error))


@of_each
@pytest.mark.parametrize("where", [fail, in_a_task, in_tasks, in_a_task_group, in_a_task_of_a_task])
async def test_what_is_no_exception_becomes_one(
    where: Callable[[BaseException], Awaitable[None]], raised: BaseException, told: str
) -> None:
    """In each place of the code; the event loop goes on."""
    if where is in_a_task_group and isinstance(raised, asyncio.CancelledError):
        pytest.skip("a group ignores a task that is cancelled")
    errors = (UserCodeError, RuntimeError, ExceptionGroup)
    with pytest.raises(errors) as caught, translate_base_exceptions():
        await where(raised)

    stopped = "RuntimeError: coroutine raised StopIteration"
    assert error_text(caught.value) == (stopped if isinstance(raised, StopIteration) else told)


@of_each
def test_a_thread_raises_what_a_future_takes(raised: BaseException, told: str) -> None:
    """Ctrl-C does not come there: it comes to the main thread."""
    caught: list[str] = []

    def run() -> None:
        try:
            with translate_base_exceptions():
                raise raised
        except UserCodeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == [told]


def test_ctrl_c_where_no_event_loop_runs_is_left_alone() -> None:
    """For example during the import of an agent's file."""
    with pytest.raises(KeyboardInterrupt), translate_base_exceptions():
        raise KeyboardInterrupt


async def test_an_exception_stays_what_it_is() -> None:
    """With its cause."""
    raised, cause = ValueError("no"), KeyError("a")
    raised.__cause__ = cause
    with pytest.raises(ValueError, match="no") as caught, translate_base_exceptions():
        raise raised
    assert (caught.value, caught.value.__cause__) == (raised, cause)


async def test_whoever_waits_can_be_cancelled() -> None:
    """A cancellation is not an error of the code."""

    async def wait() -> None:
        with translate_base_exceptions():
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_coroutine_can_be_closed() -> None:
    """For example of a task that is dropped with its event loop."""

    async def wait() -> None:
        with translate_base_exceptions():
            await asyncio.sleep(0)

    coroutine = wait()
    coroutine.send(None)
    coroutine.close()


async def test_tasks_of_user_code_are_as_others() -> None:
    """They return, can be cancelled before they start, have names, and show their stack."""

    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    with translate_base_exceptions(), warnings.catch_warnings():
        warnings.simplefilter("error")
        task = asyncio.create_task(one(), name="one")
        stopped = asyncio.create_task(one())
        stopped.cancel()
        await asyncio.wait([stopped])
        assert stopped.cancelled()
        assert (task.get_name(), await task) == ("one", 1)
        waiting = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        assert waiting.get_stack()
        waiting.cancel()


async def test_another_factory_of_tasks_goes_on_making_them() -> None:
    """One that other code has set on the event loop."""
    made: list[str] = []

    def factory(
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        **settings: Any,  # noqa: ANN401 -- of any version of Python
    ) -> asyncio.Future[Any]:
        made.append("task")
        return asyncio.Task(work, loop=loop, **settings)

    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    loop.set_task_factory(factory)  # pyright: ignore[reportArgumentType] -- it makes no generator a task
    try:
        with pytest.raises(UserCodeError), translate_base_exceptions():
            await in_a_task(SystemExit(2))
        with translate_base_exceptions():
            await asyncio.create_task(asyncio.sleep(0))
    finally:
        loop.set_task_factory(before)
    assert made == ["task", "task"]


# Groups of errors.


def test_of_a_group_the_inner_errors_are_told() -> None:
    """A single one is reported alone; of several the group, and each."""
    first, second = ValueError("no such city"), KeyError("b")
    one = ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("inner", [first])])
    two = ExceptionGroup("2 cities failed", [first, ExceptionGroup("inner", [second])])

    assert (error_text(one), error_kind(one)) == ("ValueError: no such city", "ValueError")
    assert error_text(two) == (
        "ExceptionGroup: 2 cities failed (2 sub-exceptions)\n- ValueError: no such city\n- KeyError: 'b'"
    )
    assert error_kind(two) == "ExceptionGroup"
    assert inner_errors(two) == [first, second]


def test_a_large_group_is_cut() -> None:
    """The model has more to read."""
    lines = error_text(ExceptionGroup("all", [ValueError(str(n)) for n in range(50)])).splitlines()
    assert (len(lines), lines[-1]) == (22, "- and 30 more")
