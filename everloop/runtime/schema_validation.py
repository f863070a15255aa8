"""Validate foreign JSON schemas (of models, peers, servers, users), and values against them.

The author of a schema, or of a pattern in it, controls the duration of a check: references that double
each other are exponential in every validator, and recursion can end a process. So schemas are compiled
and values checked in a child process (`schema_process`), which ends when its budget is used up. Callers
in an event loop wait in a thread (`in_schema_thread`).
"""

import asyncio
import atexit
import json
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from everloop.workflows.contract.parts import levels_of

MAX_SCHEMA_BYTES = 262_144
MAX_SCHEMA_DEPTH = 100
"""Greatest depth of nested lists and objects."""

MAX_VALUE_DEPTH = 200
"""Greatest depth of a value. The validator library ends the process on much deeper ones."""

BUDGET = 2.0
"""Seconds of processor time per check."""

ANSWER_TIMEOUT = 60.0
"""Seconds of wall-clock time after which a process that neither answers nor ends is ended."""

AT_ONCE = 4
"""Concurrency of checks, and so of processes; further checks wait."""

_PROGRAM = Path(__file__).with_name("schema_process.py")
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are not schemas."""
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords that map names to schemas; the names may equal keywords."""


Made = TypeVar("Made")


class SchemaUnfitError(Exception):
    """The schema cannot be used for validation; the text gives the reason."""


class SchemaTooSlowError(SchemaUnfitError):
    """A check exceeded its budget."""

    def __init__(self) -> None:
        super().__init__(
            "checking it takes too long, or too much memory: references or patterns in the schema multiply "
            "each other; write it simpler"
        )


@dataclass(frozen=True)
class SchemaViolation:
    """Place at which a value violates a rule. The `message` repeats the value, the `rule` does not.

    `value` is the index of the value among those that were checked together.
    """

    value: int
    path: tuple[str | int, ...]
    message: str
    rule: str

    @property
    def json_path(self) -> str:
        """The place as JSONPath."""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)


def problem_of_schema(schema: Mapping[str, JsonValue]) -> str:
    """Return the problem of a schema; empty if it is valid. Blocks.

    A reference to another document is a problem: validators would fetch it.
    """
    if problem := _problem(schema):
        return problem
    return _problem_of(_written(schema).decode())


def find_schema_violations(
    schema: Mapping[str, JsonValue], values: Sequence[JsonValue], *, most: int = 1
) -> list[SchemaViolation]:
    """Return the violations of a schema by some values, at most `most`. Blocks.

    The default dialect is 2020-12. Formats are not checked.

    Raises:
        SchemaUnfitError: the schema cannot be used for validation.
    """
    if problem := _problem(schema):
        raise SchemaUnfitError(problem)
    if any(_is_deeper(value, MAX_VALUE_DEPTH) for value in values):
        raise SchemaUnfitError(f"the value is nested deeper than {MAX_VALUE_DEPTH} levels")
    answer = _ask({"schema": dict(schema), "values": list(values), "most": most})
    if problem := answer.get("problem"):
        raise SchemaUnfitError(f"this is no JSON schema: {problem}")
    return [
        SchemaViolation(found["value"], tuple(found["path"]), found["message"], found["rule"])
        for found in answer["violations"]
    ]


async def find_schema_violations_soon(
    schema: Mapping[str, JsonValue], values: Sequence[JsonValue], *, most: int = 1
) -> list[SchemaViolation]:
    """Return the violations as `find_schema_violations` does, without blocking the event loop.

    Raises:
        SchemaUnfitError: the schema cannot be used for validation.
    """
    return await in_schema_thread(lambda: find_schema_violations(schema, values, most=most))


async def in_schema_thread(make: Callable[[], Made]) -> Made:
    """Run an operation that may wait for the check of a foreign schema in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, make)


def _problem(schema: Mapping[str, JsonValue]) -> str:
    """Return the problem of a schema that is found without compiling it."""
    plain = dict(schema)
    if _is_deeper(plain, MAX_SCHEMA_DEPTH):
        return f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels; write parts of it as $defs"
    if len(_written(plain)) > MAX_SCHEMA_BYTES:
        return f"the schema is larger than {MAX_SCHEMA_BYTES} bytes; leave out descriptions, or write less"
    if outside := next((ref for ref in _references(plain) if not ref.startswith("#")), None):
        return f"the schema refers to {outside!r}; put it in ($defs)"
    return ""


@lru_cache(maxsize=512)
def _problem_of(written: str) -> str:
    try:
        problem = _ask({"schema": json.loads(written), "values": [], "most": 0}).get("problem")
    except SchemaUnfitError as error:
        return f"this is no JSON schema that can be used: {error}"
    return f"this is no JSON schema: {problem}" if problem else ""


def _references(schema: JsonValue) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in _REFERENCES and isinstance(value, str):
                yield value
            elif key in _NAMED and isinstance(value, dict):
                yield from _references([*value.values()])
            elif key not in _VALUES:
                yield from _references(value)


def _is_deeper(value: JsonValue, depth: int) -> bool:
    return any(found > depth for found, _ in enumerate(levels_of(value)))


def _written(schema: Mapping[str, JsonValue]) -> bytes:
    try:
        return to_json(schema)
    except (PydanticSerializationError, ValueError):
        raise SchemaUnfitError("it is no JSON") from None


class _Processes:
    """Pool of idle processes; at most `AT_ONCE` in all."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(AT_ONCE)
        self._idle: list[subprocess.Popen[bytes]] = []
        atexit.register(self.close)

    def ask(self, line: bytes) -> bytes:
        """Return the answer to a line; empty if the process ended over it."""
        with self._free:
            process = self._take()
            try:
                answer = _exchange(process, line)
            except BaseException:
                _end(process)
                raise
            if answer.endswith(b"\n"):
                self._idle.append(process)
                return answer
            _end(process)
            return b""

    def close(self) -> None:
        """End the idle processes."""
        while self._idle:
            _end(self._idle.pop())

    def _take(self) -> subprocess.Popen[bytes]:
        while self._idle:
            process = self._idle.pop()
            if process.poll() is None:
                return process
            _end(process)
        # It needs no variable of our environment, and so gets none.
        return subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-I", str(_PROGRAM), str(BUDGET)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )


def _exchange(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    if process.stdin is None or process.stdout is None:
        return b""
    try:
        process.stdin.write(line)
        process.stdin.flush()
    except BrokenPipeError:
        return b""
    waiting = select.poll()
    waiting.register(process.stdout, select.POLLIN)
    return process.stdout.readline() if waiting.poll(ANSWER_TIMEOUT * 1_000) else b""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            try:
                pipe.close()
            except BrokenPipeError:  # the unread rest of the line
                continue


_PROCESSES = _Processes()
_THREADS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="schemas")
"""Dedicated threads: slow checks do not delay other work."""


def _ask(request: Mapping[str, object]) -> dict[str, Any]:
    try:
        line = to_json(request, inf_nan_mode="constants") + b"\n"
    except (PydanticSerializationError, ValueError):
        raise SchemaUnfitError("the schema, or the value, is no JSON") from None
    answer = _PROCESSES.ask(line)
    if not answer:
        raise SchemaTooSlowError
    return json.loads(answer)
