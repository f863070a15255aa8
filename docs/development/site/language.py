"""Check the language of documents, docstrings and comments: `make lint`.

A sentence of a document has at most so many words, and no word that is unusual or empty. Docstrings, comments
and decisions (docs/adr) name things by nouns, and processes by what they do. The changelog is not checked.
"""

import ast
import io
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]

AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")

MOST_WORDS = 32

INSTEAD = {
    "aforementioned": "say which",
    "amongst": "among",
    "anew": "again",
    "hence": "so",
    "henceforth": "from now on",
    "herein": "here",
    "leverage": "use",
    "obviously": "nothing",
    "of course": "nothing",
    "seamless": "say what does not break",
    "seamlessly": "say what does not break",
    "simply": "nothing",
    "thereof": "of it",
    "utilize": "use",
    "whilst": "while",
    "e.g.": "for example",
    "etc.": "and so on",
    "i.e.": "that is",
    "afterthought": "post-completion",
    "misfit": "validation error",
    "patience": "backoff",
}
"""Words of documents and what to write in their place: long ones, empty ones, and our own inventions."""

_SOFTWARE = (
    "agents?|attempts?|calls?|clients?|commands?|connections?|consoles?|gateways?|it|library|models?|pages?"
    "|process(?:es)?|providers?|readers?|Redis|runs?|scripts?|SDK|servers?|stores?|subscribers?|tasks?|Temporal"
    "|tools?|views?|workers?|workflows?"
)

CLAUSES = {
    r"\AWhat\b": "begin with a noun: “The result of …”, “Fields that …”",
    r"(?<=[.;] )[Ww]hat (?:is|are|was|were|has|had)\b": "name it: “Values that …”, “The missing …”",
    r"\b(?:at|by|for|from|in|of|on|than|to|with) what (?:is|are|was|were|has|had)\b": "name it: “fields …”",
    r"\b[Ww]hat (?:\w+ ){1,4}(?:comes?|came|(?:has|have|had) come) to\b": "write “the result of …”",
    r"\b[Dd]o what\b": "write the verb of the action",
    r"\ALet\b": "begin with the verb of the action: “Index …”, “Allow …”",
    r"\b[Nn]obody\b": "write the passive, or a noun: “no caller”, “unless it is answered”",
    r"\b[Ww]hoever\b": "write a noun: “a caller that …”, “any process that …”",
    r"\banew\b": "write “again”",
    r"(?<!here )\b(?:is|are|was|were) none\b(?! of)": "write “is not one”, “does not exist”",
    r"\b(?:it|one|that|what|which|who) (?:is|are|was|were) no (?!longer|more)": "write “is not a …”",
    r"\bthat (?:is|are|was|were) not there\b": "write “missing”",
    rf"\b(?:{_SOFTWARE}) (?:wants?|wanted|knows?|knew|hears?|heard)\b": "write what it does: reads, stores",
}
"""Patterns that readers have to decode in docstrings, comments and decisions, and the remedy for each."""

NOT_OURS = frozenset({".git", ".venv", "__pycache__", "build", "dist", "node_modules"})

_WORDS = re.compile(rf"(?<![\w-])(?:{'|'.join(re.escape(word) for word in INSTEAD)})(?![\w-])", re.IGNORECASE)

_HIDDEN = re.compile(r"^[ \t]*```.*?^[ \t]*```|<!--.*?-->|^---\n.*?^---\n", re.MULTILINE | re.DOTALL)
"""Code and comments of a document."""

_NO_PROSE = re.compile(r"^\s*(?:\||#|===|:::|!\[|<)")
"""The beginning of a line of a table, a heading, a tab, a picture."""

_LIST_ITEM = re.compile(r"^\s*(?:[-*:]|\d+\.)\s+")

_SENTENCE_END = re.compile(r"(?<=[.!?:])[\"”)*]*\s+(?=[^a-z\s])")

_HASH = re.compile(r"(?:^|(?<=\s))#+ (.*)")

_SLASHES = re.compile(r"(?:^|(?<=\s))(?://|/?\*\*?) (.*?)(?:\*/)?$")

_COMMENTS = {
    **dict.fromkeys((".sh", ".toml", ".yaml", ".yml", "Dockerfile", "Makefile"), _HASH),
    **dict.fromkeys((".css", ".mjs", ".ts", ".tsx"), _SLASHES),
    ".lua": re.compile(r"(?:^|(?<=\s))-- (.*)"),
}
"""The comment in a line, by the ending of a file or its name. Python files are parsed."""


def main() -> int:
    """Print a line for each problem, and return 1 if there is any."""
    pages = [*(ROOT / name for name in AT_THE_TOP), *sorted((ROOT / "docs").rglob("*.md"))]
    problems = [problem for page in pages if not _is_decision(page) for problem in problems_of(page)]
    files = [*sources()]
    problems += [problem for file in files for problem in clauses_of(file)]
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


def problems_of(page: Path) -> Iterator[str]:
    """Yield the long sentences and the unusual words of a document."""
    plain = _prose(page.read_text(encoding="utf-8"))
    for number, line in enumerate(plain.splitlines(), start=1):
        for word in _WORDS.findall(line):
            yield f"{_name(page)}:{number}: “{word}”: write {INSTEAD[word.lower()]}"
    for number, paragraph in paragraphs(plain):
        for sentence in _SENTENCE_END.split(paragraph):
            count = len(re.findall(r"[\w'-]+", re.sub(r"\]\([^)]*\)", "]", sentence)))
            if count > MOST_WORDS:
                said = f"{count} words in a sentence, at most {MOST_WORDS}: {sentence[:60]}…"
                yield f"{_name(page)}:{number}: {said}"


def clauses_of(file: Path) -> Iterator[str]:
    """Yield the clauses of docstrings and comments, or of a decision, that readers have to decode."""
    for first, text in texts_of(file):
        lines = "\n".join(line.strip() for line in _without_code(text).splitlines())
        for pattern, remedy in CLAUSES.items():
            for found in re.finditer(pattern, lines.replace("\n", " ")):
                number = first + lines.count("\n", 0, found.start())
                yield f"{_name(file)}:{number}: “{found[0].strip()}”: {remedy}"


def sources() -> Iterator[Path]:
    """Yield each file of the repository that has docstrings or comments, and each decision."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted({*folders} - NOT_OURS)
        for file in (Path(folder, name) for name in sorted(names)):
            kind = file.suffix or file.name
            if (kind == ".py" or kind in _COMMENTS or _is_decision(file)) and not file.is_symlink():
                yield file


def texts_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each docstring, comment or paragraph of a file, with the number of its first line."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        yield from paragraphs(_prose(text))
    elif file.suffix == ".py":
        yield from _docstrings(ast.parse(text))
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [each for each in tokens if each.type == tokenize.COMMENT]
        yield from _joined((each.start[0], each.string.lstrip("# ")) for each in comments)
    else:
        comment = _COMMENTS[file.suffix or file.name]
        found = ((number, comment.search(line)) for number, line in enumerate(text.splitlines(), start=1))
        yield from _joined((number, match[1]) for number, match in found if match)


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph and list item of a document as one line, with the number of its first line."""
    first, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        ends = not line.strip() or _NO_PROSE.match(line) or _LIST_ITEM.match(line)
        if ends and lines:
            yield first, " ".join(lines)
            lines = []
        if line.strip() and not _NO_PROSE.match(line):
            first = first if lines else number
            lines.append(_LIST_ITEM.sub("", line).strip())


def _docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(module):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case _:
                pass


def _joined(comments: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield comments on consecutive lines as one text."""
    block: list[tuple[int, str]] = []
    for number, text in (*comments, (-1, "")):
        if block and number != block[-1][0] + 1:
            yield block[0][0], "\n".join(line for _, line in block)
            block = []
        block.append((number, text))


def _prose(text: str) -> str:
    """Return a document without blocks of code and comments. Lines keep their numbers."""
    return _without_code(_HIDDEN.sub(lambda found: "\n" * found[0].count("\n"), text))


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "Code", text)


def _is_decision(file: Path) -> bool:
    return file.suffix == ".md" and file.parent == ROOT / "docs/adr"


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
