"""Boundary around user code: every error that passes it is an `Exception`.

`except Exception` does not catch an exit, an interrupt, a panic of a library in Rust, or a cancellation
by the code itself: the worker would end, or the call would be retried for ever without a report.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, cast

MAX_ERRORS = 20
"""Greatest number of listed errors of a group."""

T = TypeVar("T")


class UserCodeError(Exception):
    """User code raised `error`, which does not derive from `Exception` or cannot pass through asyncio."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error_text(error))
        self.error = error


@contextmanager
def translate_base_exceptions() -> Generator[None]:
    """Run user code. Tasks that it starts cannot raise an exit out of the event loop, either.

    Raises:
        UserCodeError: it raised an error that `as_exception` translates.
        CancelledError: this task is cancelled, not only a task that the code awaited.
        KeyboardInterrupt: Ctrl-C without an event loop that handles it.
    """
    before = _runs_user_code.get()
    _runs_user_code.set(True)
    _contain_tasks()
    try:
        yield
    except BaseException as error:
        translated = as_exception(error)
        if translated is error or _is_for_us(error):
            raise
        raise translated from error
    finally:
        _runs_user_code.set(before)


def as_exception(error: BaseException) -> Exception:
    """Return an `Exception` unchanged; wrap others, or one that no future accepts, in `UserCodeError`."""
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        return UserCodeError(error)
    return error


def _is_for_us(error: BaseException) -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        is_main = threading.current_thread() is threading.main_thread()
        return isinstance(error, GeneratorExit) or (isinstance(error, KeyboardInterrupt) and is_main)
    is_cancelled = task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and is_cancelled)


# Tasks that user code starts: asyncio raises an exit in one out of the event loop, past all awaiting code.

_runs_user_code = ContextVar("_runs_user_code", default=False)
"""Tasks inherit it."""


def _contain_tasks() -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    if not isinstance(former := loop.get_task_factory(), _TaskFactory):
        loop.set_task_factory(_TaskFactory(former or asyncio.Task))


@dataclass(frozen=True)
class _TaskFactory:
    former: Callable[..., asyncio.Future[Any]]

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Generator[Any, None, T] | Coroutine[Any, Any, T],
        /,
        **settings: Any,  # noqa: ANN401 -- of any version of Python
    ) -> asyncio.Future[T]:
        if _runs_user_code.get():
            work = _Contained(cast("Coroutine[Any, Any, T]", work))
        if self.former is asyncio.Task:
            return asyncio.Task(work, loop=loop, **settings)
        return self.former(loop, work, **settings)


class _Contained(Coroutine[Any, Any, T]):
    """Coroutine that raises a `UserCodeError` in place of an exit.

    Not an `async def` around another: one that is cancelled before it starts would leave that
    unawaited.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def send(self, value: object) -> object:
        return _without_exit(self._work.send, value)

    def throw(self, *error: Any) -> object:  # noqa: ANN401 -- as it is called by asyncio, or by hand
        return _without_exit(self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def __getattr__(self, name: str) -> object:  # frames, for the printed stack of a task
        return getattr(self._work, name)


def _without_exit(step: Callable[..., object], *given: object) -> object:
    try:
        return step(*given)
    except (SystemExit, KeyboardInterrupt) as error:
        raise UserCodeError(error) from error


# Texts of errors. Groups and `UserCodeError` count as the errors inside them.


def inner_errors(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, nested groups included; any other error alone."""
    if isinstance(error, UserCodeError):
        return inner_errors(error.error)
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [inner for each in group.exceptions for inner in inner_errors(each)]
    return [error]


def error_kind(error: BaseException) -> str:
    """Return the class name of an error; for a group with one error, the name of that."""
    inner = inner_errors(error)
    return type(inner[0] if len(inner) == 1 else error).__name__


def error_text(error: BaseException) -> str:
    """Return kind and text of an error, as far as they can be sent; for a group, of each error in it."""
    inner = inner_errors(error)
    if len(inner) == 1:
        return _text(inner[0])
    more = [f"- and {len(inner) - MAX_ERRORS} more"] if len(inner) > MAX_ERRORS else []
    return "\n".join([_text(error), *(f"- {_text(each)}" for each in inner[:MAX_ERRORS]), *more])


def _text(error: BaseException) -> str:
    try:
        said = str(error)
    except BaseException:  # noqa: BLE001 -- it is their code that says it
        said = "(it cannot say what)"
    if isinstance(error, asyncio.CancelledError):
        said = said or "something that it called was cancelled"
    return f"{type(error).__name__}: {said}".encode(errors="replace").decode()
