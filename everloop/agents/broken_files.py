"""What is wrong in a file of the user, told in one line of file, line and reason.

There is no traceback in it, and nothing that was given to pydantic.
"""

import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from everloop.agents.errors import AgentDefinitionError, AgentError

MAX_REASON = 500
"""Characters of a reason; the rest is left out."""

_OURS = Path(__file__).parent
_RULE = "Value error, "


@contextmanager
def told_in_one_line(file: Path) -> Generator[None]:
    """Run what a file of the user defines.

    Raises:
        AgentDefinitionError: it raised something; the message is one line.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        where, line = _place_of(error, file.resolve())
        raise AgentDefinitionError(f"{shown(where)}:{line}: {_reason_of(error)}") from error


def _place_of(error: BaseException, file: Path) -> tuple[Path, int]:
    """Return the innermost line of the user's that led to the error: in the file, or in others beside it."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [(Path(frame.f_code.co_filename).resolve(), line) for frame, line in frames]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((Path(error.filename).resolve(), error.lineno or 1))
    is_beside = file.parent != _OURS
    users = [line for line in lines if line[0] == file or (is_beside and line[0].parent == file.parent)]
    return users[-1] if users else (file, 1)


def _reason_of(error: BaseException) -> str:
    if isinstance(error, AgentError):
        reason = str(error)
    elif isinstance(error, ValidationError):
        reason = f"{error.title}: {_without_values(error)}"
    elif isinstance(error, SyntaxError):
        reason = f"{type(error).__name__}: {error.msg}"
    else:
        reason = f"{type(error).__name__}: {error}"
    line = " ".join(reason.split())
    return line if len(line) <= MAX_REASON else f"{line[:MAX_REASON]} …"


def _without_values(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    fields = [".".join(map(str, problem["loc"])) for problem in problems]
    told = [problem["msg"].removeprefix(_RULE) for problem in problems]
    return "; ".join(f"{field}: {what}" if field else what for field, what in zip(fields, told, strict=True))


def shown(path: Path) -> str:
    """Return a path as people know it: relative to where they started the process, if it is below."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
