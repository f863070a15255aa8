"""Exact arithmetic on expressions that a model writes."""

import ast
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath

MAX_EXPRESSION = 500
"""Characters; too few to nest as deep as the interpreter can go."""

MAX_BITS = 10_000
MAX_DECIMAL_EXPONENT = 3_000

_DECIMAL = re.compile(r"[\d_.]+(?:[eE](?P<exponent>[+-]?[\d_]+))?")


def calculate(expression: str) -> str:
    """Evaluate an arithmetic expression exactly and return the result as text.

    Supports numbers, parentheses and + - * / // % **. An integer is shown as one; any other number as a
    fraction with its decimal form. Numbers may have up to 10,000 bits (about 3,000 digits).

    Raises:
        ValueError: an invalid expression, a division by zero, or a number that is too large.
    """
    return _shown(evaluate(expression))


def evaluate(expression: str) -> Fraction:
    """Return the exact value of an expression; see `calculate`."""
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(
            f"the expression has {len(expression)} characters; at most {MAX_EXPRESSION} are read"
        )
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body, expression.strip())
    except ZeroDivisionError:
        raise ValueError(f"{expression!r} divides by zero") from None
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is no arithmetic expression: {error}") from None


def _value(node: ast.expr, source: str) -> Fraction:
    match node:
        case ast.Constant():
            return _bounded(_literal(node, source))
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            operand = _value(node.operand, source)
            return -operand if isinstance(node.op, ast.USub) else operand
        case ast.BinOp() if type(node.op) in _OPERATORS:
            left, right = _value(node.left, source), _value(node.right, source)
            return _bounded(Fraction(_OPERATORS[type(node.op)](left, right)))
        case _:
            raise ValueError(
                f"{ast.get_source_segment(source, node)!r} is not understood; "
                "write numbers, parentheses and + - * / // % **"
            )


def _literal(node: ast.Constant, source: str) -> Fraction:
    """Read a number from the source, because a float would already have rounded it."""
    if type(node.value) is int:
        return Fraction(node.value)
    text = ast.get_source_segment(source, node) or ""
    written = _DECIMAL.fullmatch(text)
    if type(node.value) is not float or not written:
        raise ValueError(f"{text!r} is not a real number")
    if abs(int(written["exponent"] or 0)) > MAX_DECIMAL_EXPONENT:
        raise ValueError(f"{text} has an exponent beyond {MAX_DECIMAL_EXPONENT:,}")
    return Fraction(text)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError(f"the exponent {exponent} is not a whole number; only whole powers are exact")
    # Refused before it is computed: the result of a huge power would fill the memory first.
    growth = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if growth * abs(exponent.numerator) > MAX_BITS:
        raise ValueError(f"the result of the power has more than {MAX_BITS:,} bits")
    return Fraction(base**exponent.numerator)


_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ValueError(f"a number in the calculation has more than {MAX_BITS:,} bits")
    return value


def _shown(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    sign = "=" if Fraction(decimal) == value else "≈"
    return f"{value} {sign} {decimal}"


# Reading the files of one directory, and of nothing outside of it.

MAX_ENTRIES = 200
MAX_MATCHES = 50
MAX_SEARCHED_FILES = 2_000
MAX_FILE_BYTES = 2_000_000
MAX_TEXT = 16_000
MAX_LINE = 300

SKIPPED_DIRECTORIES = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Folder:
    """A directory that a model may read. Hidden files, and links that lead out, do not exist in it.

    `root` must exist and be resolved. Paths are relative to it, with `/`. Every method raises a
    ValueError with the problem of a path, in words that a model can act on.
    """

    root: Path

    def find(self, path: str) -> Path:
        """Return the real place of a path.

        Raises:
            ValueError: absolute, `..`, hidden, leads out through a link, or does not exist.
        """
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts:
            raise ValueError(f"{path!r} may lead out of the directory; give a relative path without '..'")
        if _is_hidden(relative):
            raise ValueError(f"{path!r} is hidden; hidden files and directories are not shown")
        try:
            place = (self.root / relative).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):  # missing, unencodable, or a circle of links
            raise ValueError(f"there is no {path!r}; list_files shows what there is") from None
        if not self._contains(place):
            raise ValueError(f"{path!r} is a link that leads out of the directory or to a hidden place")
        return place

    def list_files(self, path: str) -> str:
        """Return one line per subdirectory, `name/`, and per file, `name (N bytes)`; at most 200 lines."""
        place = self.find(path)
        if not place.is_dir():
            raise ValueError(f"{path!r} is a file; read_file reads it")
        try:
            lines = list(self._entries(place))
        except OSError:
            raise ValueError(f"{path!r} cannot be listed") from None
        return "\n".join(_cut(lines, MAX_ENTRIES, "entries")) or f"{path!r} is empty"

    def read_file(self, path: str, first_line: int) -> str:
        """Return `path: N lines, M bytes` and the text from `first_line` (1-based) on, 16,000 characters."""
        place = self.find(path)
        if not place.is_file():  # also a pipe or a device, which would block the reader
            raise ValueError(f"{path!r} is not a file; list_files shows what there is")
        text = _text_of(place)
        if text is None:
            raise ValueError(f"{path!r} is not UTF-8 text, or larger than {MAX_FILE_BYTES:,} bytes")
        lines = _lines(text)
        if first_line < 1 or first_line > max(len(lines), 1):
            raise ValueError(f"first_line is {first_line}; {path!r} has the lines 1 to {len(lines)}")
        head = f"{_escaped(path)}: {len(lines)} lines, {len(text.encode())} bytes"
        return "\n".join([head, *_excerpt(lines, first_line)])

    def search_files(self, text: str, path: str) -> str:
        """Return `path:line: text` for the lines that contain a text, in any case; at most 50."""
        if not text.strip():
            raise ValueError("the text to look for is empty")
        matches: list[str] = []
        searched = 0
        for place in self._files_below(self.find(path)):
            if searched == MAX_SEARCHED_FILES or len(matches) > MAX_MATCHES:
                break
            searched += 1
            matches.extend(self._matches(place, text.casefold()))
        more = [f"(stopped after {searched} files)"] if searched == MAX_SEARCHED_FILES else []
        found = _cut(matches, MAX_MATCHES, "matches") or [f"no line contains {text!r}"]
        return "\n".join([*found, *more])

    def _contains(self, place: Path) -> bool:
        return place.is_relative_to(self.root) and not _is_hidden(place.relative_to(self.root))

    def _visible(self, directory: Path) -> Iterator[tuple[Path, Path]]:
        """Yield the visible entries of a directory, in order, each with its real path."""
        for child in sorted(directory.iterdir()):
            with suppress(ValueError):
                if child.name not in SKIPPED_DIRECTORIES:
                    yield child, self.find(child.relative_to(self.root).as_posix())

    def _entries(self, directory: Path) -> Iterator[str]:
        visible = list(self._visible(directory))
        yield from (f"{_escaped(child.name)}/" for child, place in visible if place.is_dir())
        for child, place in visible:
            if place.is_file():
                yield f"{_escaped(child.name)} ({place.stat().st_size} bytes)"

    def _files_below(self, start: Path) -> Iterator[Path]:
        if start.is_file():
            yield start
            return
        try:
            visible = list(self._visible(start))
        except OSError:  # it vanished, or is not readable
            return
        yield from (child for child, place in visible if place.is_file())
        for child, place in visible:
            if place.is_dir() and not child.is_symlink():  # a link may lead back up
                yield from self._files_below(child)

    def _matches(self, place: Path, text: str) -> Iterator[str]:
        name = _escaped(place.relative_to(self.root).as_posix())
        for number, line in enumerate(_lines(_text_of(place) or ""), start=1):
            if text in line.casefold():
                yield f"{name}:{number}: {line.strip()[:MAX_LINE]}"


def _is_hidden(path: PurePosixPath | Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _text_of(place: Path) -> str | None:
    """Return the file as text; None if it is too large or not UTF-8, or if it vanished."""
    try:
        if place.stat().st_size > MAX_FILE_BYTES:
            return None
        return place.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _lines(text: str) -> list[str]:
    """Split at line feeds only, as `wc -l` and editors count."""
    return text.removesuffix("\n").split("\n") if text else []


def _excerpt(lines: list[str], first_line: int) -> list[str]:
    shown: list[str] = []
    size = 0
    for line in lines[first_line - 1 :]:
        size += len(line) + 1
        if size > MAX_TEXT:
            break
        shown.append(line)
    left = len(lines) - (first_line - 1) - len(shown)
    if not left:
        return shown
    following = first_line + len(shown)
    if not shown:  # one line alone is longer than all that may be shown
        return [lines[first_line - 1][:MAX_TEXT], f"(line {first_line} cut after {MAX_TEXT:,} characters)"]
    return [*shown, f"({left} more lines; read on with first_line={following})"]


def _cut(lines: list[str], limit: int, what: str) -> list[str]:
    if len(lines) <= limit:
        return lines
    return [*lines[:limit], f"(only the first {limit} {what} are shown)"]


def _escaped(name: str) -> str:
    """Escape a name that could forge a line of output or cannot be encoded."""
    return name if name.isprintable() else ascii(name)
