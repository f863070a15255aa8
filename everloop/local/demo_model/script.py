"""Script of the demo model: fixed replies with the tools of the demo agent, without a language model.

For other agents it stands in as well as it can (`stand_in`).

The script stores nothing between requests. It finds the completed steps in the messages, so the same
conversation always gets the same reply from any process.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from everloop.local.demo_model.chat_request import ChatRequest
from everloop.local.demo_model.completion import Call, Reply
from everloop.local.demo_model.stand_in import stand_in

MODEL = "everloop-demo-scripted"
SCRIPTED = "This is Everloop's scripted demo model: no language model wrote this text."
TOOLS_OF_THE_DEMO = frozenset({"list_files", "read_file", "calculate"})
MAX_FILES = 3
MAX_COUNT = 10_000

EXPLANATION = f"""{SCRIPTED}

It plays a fixed script and cannot answer that. It can
- look at a directory: "Look at the directory `everloop/workflows/contract` and count its lines",
- take notes meanwhile: add "and take notes", and search: add a text in double quotes,
- leave an artifact behind: add "and write a report",
- calculate: "What is 2 ** 64 - 1?",
- count: "Count to 100".

To have a language model answer, set EVERLOOP_MODEL and the key of its provider (OPENAI_API_KEY for \
OpenAI; EVERLOOP_MODEL=ollama/qwen3 needs none), and start Everloop again."""

_READABLE = (".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json")
_FILE = re.compile(r"^(?P<name>\S+) \((?P<bytes>\d+) bytes\)$", re.MULTILINE)
_HEAD = re.compile(r"^(?P<path>.+): (?P<lines>\d+) lines, (?P<bytes>\d+) bytes$", re.MULTILINE)
_MATCH = re.compile(r"^.+?:\d+: ", re.MULTILINE)
_EXPRESSION = re.compile(r"[(\d][\d\s.()+\-*/%]*[+\-*/%][\d\s.()+\-*/%]*[)\d]")


@dataclass(frozen=True)
class ScriptTurn:
    """The newest message of the user, and the steps since."""

    prompt: str
    results: Sequence[tuple[str, str]]
    tools: frozenset[str]

    def of(self, name: str) -> list[str]:
        """Return the results of one tool, in the order of the calls."""
        return [result for tool, result in self.results if tool == name]

    def lacks(self, name: str) -> bool:
        """Whether the tool is available and was not called yet."""
        return name in self.tools and not self.of(name)


async def answer(request: ChatRequest) -> Reply:
    """Return the script's reply to this conversation, for any model name."""
    turn = ScriptTurn(request.prompt, request.returned, request.tool_names)
    prompt = turn.prompt.casefold()
    is_demo = turn.tools >= TOOLS_OF_THE_DEMO
    if re.search(r"\b(director|folder|files?\b)", prompt) and is_demo:
        return _survey(turn)
    if counting := re.search(r"\bcount to (\d{1,9})\b", prompt):
        numbers = map(str, range(1, min(int(counting[1]), MAX_COUNT) + 1))
        return Reply(f"{SCRIPTED}\n\n{' '.join(numbers)}")
    if (expression := _EXPRESSION.search(turn.prompt)) and is_demo:
        return _calculate(turn, expression[0].strip())
    return Reply(EXPLANATION) if is_demo else stand_in(request)


def _calculate(turn: ScriptTurn, expression: str) -> Reply:
    if results := turn.of("calculate"):
        return Reply(f"{SCRIPTED}\n\nThe tool calculate says: {expression} → {results[-1]}")
    return Reply("I let calculate work it out.", (Call("calculate", {"expression": expression}),))


def _survey(turn: ScriptTurn) -> Reply:
    """List, read several files at once, add up, report; with a note after each step if requested."""
    directory = _directory(turn.prompt)
    if not turn.of("list_files"):
        return Reply(f"First I list `{directory}`.", (Call("list_files", {"path": directory}),))
    files = _largest_files(directory, turn.of("list_files")[0])
    if not files:
        listing = turn.of("list_files")[0]
        return Reply(f"{SCRIPTED}\n\nNo file of `{directory}` is one that I can read:\n\n{listing}")
    return (
        _take_note(turn, directory, files)
        or _next_step(turn, directory, files)
        or _write_report(turn, directory)
        or _report(turn, directory)
    )


def _next_step(turn: ScriptTurn, directory: str, files: Sequence[str]) -> Reply | None:
    if turn.lacks("read_file"):
        calls = [Call("read_file", {"path": path}) for path in files]
        if (quoted := _quoted(turn.prompt)) and "search_files" in turn.tools:
            calls.append(Call("search_files", {"text": quoted, "path": directory}))
        return Reply("Now I look into the largest files, all at once.", tuple(calls))
    heads = _heads(turn)
    if heads and turn.lacks("calculate"):
        sums = (" + ".join(head[unit] for head in heads) for unit in ("lines", "bytes"))
        calls = [Call("calculate", {"expression": expression}) for expression in sums]
        return Reply("I add up lines and bytes.", tuple(calls))
    return None


def _take_note(turn: ScriptTurn, directory: str, files: Sequence[str]) -> Reply | None:
    """Note each finding once: the listing, then every file read, then the sum."""
    if "note" not in turn.prompt.casefold() or "note" not in turn.tools:
        return None
    findings = [f"{directory} was listed; the largest files are {', '.join(files)}"]
    findings += [f"{head['path']} has {head['lines']} lines" for head in _heads(turn)]
    findings += [f"together they have {lines} lines" for lines in turn.of("calculate")[:1]]
    new = findings[len(turn.of("note")) :]
    if not new:
        return None
    return Reply("I write down what I found.", tuple(Call("note", {"text": finding}) for finding in new))


def _write_report(turn: ScriptTurn, directory: str) -> Reply | None:
    """Write the findings to an artifact, if a report is requested."""
    if "report" not in turn.prompt.casefold() or not turn.lacks("artifact_update"):
        return None
    table = [f"| {head['path']} | {head['lines']} | {head['bytes']} |" for head in _heads(turn)]
    text = "\n".join([f"# {directory}", "", "| file | lines | bytes |", "|---|---|---|", *table, ""])
    part: dict[str, JsonValue] = {"media_type": "text/markdown", "filename": "report.md", "text": text}
    artifact: dict[str, JsonValue] = {"artifact_id": "report", "name": "Report", "parts": [part]}
    call = Call("artifact_update", {"append": False, "last_chunk": True, "artifact": artifact})
    return Reply("I write the report.", (call,))


def _report(turn: ScriptTurn, directory: str) -> Reply:
    lines = [f"{SCRIPTED} The numbers come from the tools that it called.", ""]
    lines.append(f"I listed `{directory}` and read its largest files:")
    lines += [f"- `{head['path']}`: {head['lines']} lines, {head['bytes']} bytes" for head in _heads(turn)]
    if sums := turn.of("calculate"):
        lines += ["", f"Added up by calculate: {sums[0]} lines and {sums[-1]} bytes."]
    for found in turn.of("search_files"):
        lines += ["", f"The search for “{_quoted(turn.prompt)}” found {len(_MATCH.findall(found))} lines."]
    if turn.of("artifact_update"):
        lines += ["", "The table is in the artifact `report`."]
    if notes := turn.of("note"):
        certain = notes.count("noted")
        lines += ["", f"I asked for {len(notes)} notes; {certain} of them are confirmed as written."]
    return Reply("\n".join(lines))


def _directory(prompt: str) -> str:
    named = re.search(r"`([^`\s]+)`", prompt)
    return named[1].rstrip("/") or "." if named else "."


def _quoted(prompt: str) -> str:
    quoted = re.search(r'"([^"]+)"', prompt)
    return quoted[1] if quoted else ""


def _largest_files(directory: str, listing: str) -> list[str]:
    """Return the paths of up to three text files, largest first."""
    sizes = {file["name"]: int(file["bytes"]) for file in _FILE.finditer(listing)}
    readable = [name for name, size in sizes.items() if name.endswith(_READABLE) and size]
    largest = sorted(readable, key=lambda name: (-sizes[name], name))[:MAX_FILES]
    return [name if directory == "." else f"{directory}/{name}" for name in largest]


def _heads(turn: ScriptTurn) -> list[dict[str, str]]:
    """Return path, lines and bytes of every file that could be read."""
    heads = (_HEAD.match(content) for content in turn.of("read_file"))
    return [head.groupdict() for head in heads if head]
