"""Write docs/settings.md and the list of all names: `python docs/development/site/settings.py`.

They are made from the settings classes of the code. What a field means is its docstring; its default and
its limits are those that pydantic checks. A test compares the files with what this writes.
"""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from everloop.runtime.environment import PREFIX, Settings  # noqa: E402 -- a script has its own folder on the path alone

PAGE = ROOT / "docs/settings.md"
NAMES = ROOT / "everloop/runtime/setting_names.py"

OF_OTHERS = ("API_KEY", "BIND", "PROFILE", "TOKEN", "VERSION")
"""Names of what no class reads: the compose file, and commands that ask a gateway."""

INTRO = """\
# Settings

Settings are variables of the environment. Workers and gateways read them once, when they start.

The command `everloop` also reads them from a file `.env` in the working directory. What the environment sets
goes first. The file is in UTF-8, in UTF-16 or in Windows-1252. That holds for all commands that run Everloop
or ask its servers: `dev`, `up`, `demo`, `conformance`, `worker`, `gateway`, `keys`, `schedules`,
`housekeeping`, `reindex`, `temporal` and `doctor`.
Where a stack runs in the directory, these ask its servers, whatever `.env` says of others. Commands that
[talk to agents](command-line.md) do not read the file: it may have come with a folder of somebody else.

You need few of them: see the first table. The others have defaults that fit most deployments. Give all
processes the same values.

- A wrong value ends the process. The message names the variable, and says what was expected. That holds for
  `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `SSL_CERT_FILE`, too, which libraries read.
- An empty variable counts as not set.
- A variable of what is not chosen is refused: `EVERLOOP_S3_BUCKET` without `EVERLOOP_BLOBS=s3`, for one.
- A namespace that Temporal does not have, or that lacks our search attributes, ends the process. The
  message has the command that makes them.
- Python's option `-OO` removes the docstrings that models read, so nothing that runs agents starts with it.
- A variable that begins with `EVERLOOP_` and is no setting is reported, with the nearest real name.

“Of” says who reads a variable: workers, gateways, or both. The tables are written from the code.
"""

NAMES_HEAD = '''\
"""Names of all settings, of which misspelt ones are told; written by docs/development/site/settings.py.

Processes, commands, shipped agents and deployment files share one environment.
"""

SETTINGS = frozenset(
    {'''

LOCAL = "`everloop up`"

WORKERS = ("everloop.workers", "everloop.activities", "everloop.models", "everloop.stores.token_counts")

GROUPS = """\
The common ones: AGENTS MODEL REDIS_URL HOST PORT PUBLIC_URL AUTH API_KEYS_FILE BLOBS LOG_LEVEL
Models: OPENAI_API_KEY OPENAI_BASE_URL MODELS_FILE FORK_MODELS TIKTOKEN_CACHE_DIR
Addresses: GRPC_PORT GRPC_URL CONSOLE TEMPORAL_UI_URL CORS_ORIGINS CODEC_ORIGINS CARD_KEY CARD_KEY_ID
Who may call: AUTH_ALLOW_ANONYMOUS JWT_* MTLS_*
What one owner may ask for: REQUESTS_PER_MINUTE REQUEST_BURST MAX_OPEN_TASKS MAX_STREAMS_PER_OWNER
 MAX_STREAMS MAX_MESSAGE_BYTES MAX_BODY_BYTES MAX_TASK_BYTES BLOCKING_TIMEOUT
How work is shared: TASK_QUEUE SPLIT_QUEUES QUEUE_RATES MAX_CONCURRENT_ACTIVITIES MAX_CACHED_WORKFLOWS
 TARGET_CPU TARGET_MEMORY BUILD_ID DEPLOYMENT SHUTDOWN_GRACE
How long things are kept: *_TTL_DAYS
Large content: BLOB_DIRECTORY ARTIFACT_INLINE_BYTES S3_*
Encryption, webhooks, downloads: ENCRYPTION_KEYS_FILE PUSH PUSH_ALLOW CSV_FORMULAS
Seeing inside: METRICS_ADDRESS OTEL_*
On your own machine: TEMPORAL_PORT TEMPORAL_UI_PORT REDIS_PORT DEMO_*
"""
"""Each table, and the variables in it, without `EVERLOOP_`; `*` is anything."""

READ_BY_OTHERS = """\
The common ones: `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS_…`, \
`TEMPORAL_PROFILE` | both | Where Temporal is, as for the `temporal` command. | `localhost:7233`
Models: `DEEPSEEK_API_KEY`, … | worker | The keys of other providers, as [models](models.md) lists \
them. Required for each provider that an agent asks. | none
Large content: `AWS_…` | both | With `s3`: credentials and region, as boto3 reads them. | none
Seeing inside: `OTEL_…` | both | OpenTelemetry's other variables. | off
On your own machine: `EVERLOOP_PROFILE` | `everloop` | Which gateway commands ask that [talk to agents]\
(command-line.md#which-gateway-and-who-asks): a profile of yours, or an address. | what runs here
On your own machine: `EVERLOOP_API_KEY` | `everloop` | An API key for a gateway that is no profile. | none
On your own machine: `EVERLOOP_TOKEN` | `everloop` | A bearer token for the same. | none
"""
"""Rows for what libraries read, and the command where it is a client."""

BY_HAND = {
    "OPENAI_API_KEY": "The key of OpenAI. Required where an agent asks OpenAI.",
    "OPENAI_BASE_URL": "A server that speaks Chat Completions, in the place of OpenAI.",
}
"""The meaning of providers' variables. The local stack reads them only to see whether a model is set."""


@dataclass(frozen=True)
class Setting:
    """A variable, with the words of its field."""

    name: str
    reader: str
    meaning: str
    default: str

    def __str__(self) -> str:
        return f"| `{self.name}` | {self.reader} | {self.meaning} | {self.default} |"


def page() -> str:
    """Return the page."""
    settings, tables = found_settings(), list[str]()
    for group in GROUPS.replace("\n ", " ").splitlines():
        title, _, patterns = group.partition(": ")
        rows = [
            f"| {row.removeprefix(title + ': ')} |"
            for row in READ_BY_OTHERS.splitlines()
            if row.startswith(title)
        ]
        for pattern in patterns.split():
            expression = re.compile(f"(EVERLOOP_)?{pattern.replace('*', '.*')}")
            names = [name for name in settings if expression.fullmatch(name)]
            rows += [str(settings.pop(name)) for name in names]
        head = "| variable | of | meaning | default |\n|---|---|---|---|"
        tables.append("\n".join([f"## {title}\n", head, *rows, ""]))
    if settings:
        raise LookupError(f"GROUPS has no place for {', '.join(settings)}: add them")
    return "\n".join([INTRO, *tables])


def names() -> str:
    """Return the module with the names of all settings."""
    ours = [name.removeprefix(PREFIX) for name in found_settings() if name.startswith(PREFIX)]
    lines = [f'        "{name}",' for name in sorted({*ours, *OF_OTHERS})]
    return "\n".join([NAMES_HEAD, *lines, "    }", ")", ""])


def found_settings() -> dict[str, Setting]:
    """Return all settings by their names."""
    classes = [*_settings_classes()]
    readers: dict[str, set[str]] = {}
    for cls in classes:
        for name, field in cls.model_fields.items():
            for variable in _variables(cls, name, field):
                readers.setdefault(variable, set()).add(_reader(cls, variable))
    found: dict[str, Setting] = {}
    for cls in classes:
        meanings = _meanings(cls)
        for name, field in cls.model_fields.items():
            for variable in _variables(cls, name, field):
                meaning = BY_HAND.get(variable) or meanings.get(name)
                if meaning and variable not in found:
                    meaning, unset = _split(meaning)
                    reader = _all_of(readers[variable])
                    found[variable] = Setting(variable, reader, _linked(meaning), _default(field, unset))
    return found


def _settings_classes() -> Iterator[type[Settings]]:
    for file in sorted((ROOT / "everloop").rglob("*.py")):
        relative = file.relative_to(ROOT).with_suffix("")
        text = file.read_text(encoding="utf-8")
        if "Settings):" not in text or "conformance" in relative.parts:
            continue
        name = ".".join(relative.parts)
        for each in vars(importlib.import_module(name)).values():
            if isinstance(each, type) and issubclass(each, Settings) and each.__module__ == name:
                yield each


def _meanings(cls: type[Settings]) -> dict[str, str]:
    """Return the docstrings of the fields of a class."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _variables(cls: type[Settings], name: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice).upper() for choice in alias.choices]
    return [str(alias or f"{cls.model_config.get('env_prefix', '')}{name}").upper()]


def _reader(cls: type[Settings], variable: str) -> str:
    if cls.__module__.startswith("everloop.gateway"):
        return "gateway"
    if cls.__module__.startswith("everloop.local"):
        return "worker" if variable.startswith("OPENAI_") else LOCAL
    if cls.__module__.startswith("everloop.examples"):
        return "demo agent"
    return "worker" if cls.__module__.startswith(WORKERS) else "both"


def _all_of(readers: set[str]) -> str:
    processes = readers - {LOCAL} or readers
    return processes.pop() if len(processes) == 1 else "both"


def _split(meaning: str) -> tuple[str, str]:
    """Return what a docstring says of a variable, and what of one that is not set."""
    text = " ".join(meaning.split())
    unset = re.search(r" Unset: (.+?)\.(?= [A-Z]|$)", text)
    return (text.replace(unset[0], ""), unset[1]) if unset else (text, "")


def _default(field: FieldInfo, unset: str) -> str:
    value = field.get_default(call_default_factory=True)
    limits = [
        f"{words} {getattr(limit, name):,}"
        for limit in field.metadata
        for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"))
        if getattr(limit, name, None) not in {None, 0, 1, 65535}
    ]
    written = _written(value)
    return "; ".join([unset if unset and written == "none" else written, *limits])


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        is_long = value > 9999  # noqa: PLR2004 -- a port has no comma
        return f"{int(value):,}" if is_long else f"{value:g}"
    if isinstance(value, tuple):
        value = ",".join(map(str, cast("tuple[object, ...]", value)))
    is_told = value and not (isinstance(value, Path) and value.is_absolute())
    return f"`{value}`" if is_told else "none"


def _linked(text: str) -> str:
    """Turn `See docs/a/b.md#c.` into a link, and the text into one line of a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    return re.sub(r"See docs/(\S+?/)?([\w-]+)\.md(#[\w-]+)?\.", _link, line)


def _link(found: re.Match[str]) -> str:
    folder, name, anchor = found[1] or "", found[2], found[3] or ""
    return f"See [{name.replace('-', ' ')}]({folder}{name}.md{anchor})."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    NAMES.write_text(names(), encoding="utf-8")
