"""Checks JSON schemas that others have written (models, peers, servers, users), and values against them.

Whoever writes a schema, or a pattern in it, decides how long a check takes: references that double each other
are exponential in every validator, and recursion can end a process. So each is compiled, and each value
checked, in a process beside this one (`schema_process`), with a budget after which that ends. Who waits for
it in an event loop does so in a thread (`in_schema_thread`).
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
"""Lists and objects within each other."""

MAX_VALUE_DEPTH = 200
"""The library that checks values ends the process on what is nested much deeper."""

BUDGET = 2.0
"""Seconds of processor time that one check may take."""

ANSWER_TIMEOUT = 60.0
"""Seconds of the clock until a process that neither answers nor ends is ended."""

AT_ONCE = 4
"""Checks, and so processes, at a time; more wait."""

_PROGRAM = Path(__file__).with_name("schema_process.py")
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are no schemas."""
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose values are schemas by their names, which may be those of keywords."""


Made = TypeVar("Made")


class SchemaUnfitError(Exception):
    """Nothing can be checked against the schema; the text says why."""


class SchemaTooSlowError(SchemaUnfitError):
    """A check took more than its budget."""

    def __init__(self) -> None:
        super().__init__(
            "checking it takes too long, or too much memory: references or patterns in the schema multiply "
            "each other; write it simpler"
        )


@dataclass(frozen=True)
class SchemaViolation:
    """Where a value breaks a rule. The `message` repeats the value, the `rule` does not.

    `value` is the number of the value, of those that were checked together.
    """

    value: int
    path: tuple[str | int, ...]
    message: str
    rule: str

    @property
    def json_path(self) -> str:
        """The place, as JSONPath writes it."""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)


def problem_of_schema(schema: Mapping[str, JsonValue]) -> str:
    """Return what is wrong with a schema; empty if nothing is. Wait for it here.

    A reference to another place is wrong: it would be fetched from there.
    """
    if problem := _problem(schema):
        return problem
    return _problem_of(_written(schema).decode())


def find_schema_violations(
    schema: Mapping[str, JsonValue], values: Sequence[JsonValue], *, most: int = 1
) -> list[SchemaViolation]:
    """Return what of some values does not fit a schema, `most` of it at most; wait for it here.

    The default dialect is that of 2020-12. Formats are not checked.

    Raises:
        SchemaUnfitError: it cannot be checked.
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
    """Do the same without holding up this thread, nor those that others need.

    Raises:
        SchemaUnfitError: it cannot be checked.
    """
    return await in_schema_thread(lambda: find_schema_violations(schema, values, most=most))


async def in_schema_thread(make: Callable[[], Made]) -> Made:
    """Make something of a schema that somebody else wrote, where it may wait for the check of that."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, make)


def _problem(schema: Mapping[str, JsonValue]) -> str:
    """Return what is wrong with a schema that is found without compiling it."""
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
    """Those that are idle; at most `AT_ONCE` in all."""

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
        """End those that are idle."""
        while self._idle:
            _end(self._idle.pop())

    def _take(self) -> subprocess.Popen[bytes]:
        while self._idle:
            process = self._idle.pop()
            if process.poll() is None:
                return process
            _end(process)
        # Of our environment it needs nothing, and so gets nothing.
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
            except BrokenPipeError:  # what it did not read any more
                continue


_PROCESSES = _Processes()
_THREADS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="schemas")
"""Of their own: checks that take long hold up nobody else's work."""


def _ask(request: Mapping[str, object]) -> dict[str, Any]:
    try:
        line = to_json(request, inf_nan_mode="constants") + b"\n"
    except (PydanticSerializationError, ValueError):
        raise SchemaUnfitError("the schema, or the value, is no JSON") from None
    answer = _PROCESSES.ask(line)
    if not answer:
        raise SchemaTooSlowError
    return json.loads(answer)
