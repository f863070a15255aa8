"""Child process that compiles foreign JSON schemas and checks values against them.

A program of its own, which imports nothing of Everloop: `python -I schema_process.py BUDGET`. Each
input line is `{"schema": …, "values": […], "most": n}`, each output line `{"problem": "…"}` for an
invalid schema, or else `{"violations": [{"value": i, "path": […], "message": "…", "rule": {…}}]}`. A
line that takes more than BUDGET seconds of processor time, or more memory than `MEMORY`, ends the
process.
"""

import json
import os
import signal
import sys
from itertools import islice
from typing import Any, cast

import jsonschema_rs

MEMORY = 2 * 1024**3
"""Bytes of address space."""

LONGEST_TEXT = 500
"""Characters of a message, and of the value of a rule."""

PATTERNS = jsonschema_rs.FancyRegexOptions(
    # Linear engine where possible; the limit is for patterns with look-around or backreferences.
    backtrack_limit=100_000,
    size_limit=1_000_000,
    dfa_size_limit=1_000_000,
)

_DRAFTS = ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")


def main() -> None:
    """Answer each line until the input ends."""
    budget = float(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    os.nice(5)  # the parent process serves others meanwhile
    _bound_memory()
    for line in sys.stdin.buffer:
        # Processor time, not that of the clock: a busy machine refuses nothing. SIGPROF ends the process.
        signal.setitimer(signal.ITIMER_PROF, budget)
        answer = json.dumps(_answer(line)).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()


def _bound_memory() -> None:
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 -- not on every system

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        schema = _in_supported_dialect(request["schema"])
        validator = jsonschema_rs.validator_for(
            schema, offline=True, validate_formats=False, pattern_options=PATTERNS
        )
    except RecursionError:
        return {"problem": "it, or the value, is nested too deeply"}
    except ValueError as error:  # jsonschema_rs.ValidationError is one, as is its error for too deep
        return {"problem": str(getattr(error, "message", error))[:LONGEST_TEXT]}
    violations: list[dict[str, Any]] = []
    for number, value in enumerate(request["values"]):
        if len(violations) == request["most"]:
            break
        if not validator.is_valid(value):  # much faster than listing what is wrong
            errors = islice(validator.iter_errors(value), request["most"] - len(violations))
            violations += [{"value": number, **_violation(error, schema)} for error in errors]
    return {"violations": violations}


def _violation(error: jsonschema_rs.ValidationError, schema: object) -> dict[str, Any]:
    path = error.schema_path
    keyword = str(path[-1]) if path else "schema"
    rule = json.dumps({keyword: _at(schema, path)}, ensure_ascii=False)
    return {"path": error.instance_path, "message": error.message[:LONGEST_TEXT], "rule": rule[:LONGEST_TEXT]}


def _at(schema: Any, path: list[str | int]) -> object:  # noqa: ANN401 -- JSON
    for step in path:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return False
    return schema


def _in_supported_dialect(schema: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return a schema without the name of an unknown dialect; 2020-12 applies then."""
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    named = fields.get("$schema")
    if not isinstance(named, str) or any(draft in named for draft in _DRAFTS):
        return fields
    return {keyword: value for keyword, value in fields.items() if keyword != "$schema"}


if __name__ == "__main__":
    main()
