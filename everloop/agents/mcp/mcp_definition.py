"""Definition of an MCP server by the author of an agent."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import PurePath
from urllib.parse import urlsplit

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.limits import LONGEST
from everloop.agents.tool import DEFAULT_TIMEOUT
from everloop.runtime.outbound.policy import Headers, problem_of_headers
from everloop.workflows.contract.parts import is_http_url


@dataclass(frozen=True)
class McpDefinition:
    """Address of an MCP server, and its offered tools with their settings; see `everloop.agents.mcp.mcp`.

    Raises:
        AgentDefinitionError: the address or a setting is invalid.
    """

    url: str = field(default="", repr=False)
    command: Sequence[str] = field(default=(), repr=False)
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: Headers = field(default_factory=dict[str, str], repr=False)
    tools: Sequence[str] = ("*",)
    prefix: str = ""
    timeout: timedelta = DEFAULT_TIMEOUT
    idempotent: bool | Sequence[str] | None = None
    needs_approval: bool | Sequence[str] | None = None
    quick: bool | Sequence[str] | None = None

    def __post_init__(self) -> None:
        problem = self._problem_of_server() or self._problem_of_headers() or self._problem_of_tools()
        if problem:
            raise AgentDefinitionError(f"mcp({self.label!r}): {problem}")

    @property
    def label(self) -> str:
        """The name of the server, for people; nothing secret, unless `name` is."""
        if self.name:
            return self.name
        if self.url:
            return urlsplit(self.url).hostname or "mcp"
        return PurePath(self.command[0]).stem if self.command and self.command[0] else "mcp"

    @property
    def seconds(self) -> float:
        """Timeout of a call."""
        return self.timeout.total_seconds()

    def offers(self, tool: str) -> bool:
        """Return True if a tool of the server is offered."""
        return matches(tool, self.tools)

    def _problem_of_server(self) -> str:
        if bool(self.url) == bool(self.command):
            return "give either the url of the server or the command that starts it"
        if isinstance(self.command, str) or not all(self.command):
            return 'command is a list of words, such as ["npx", "-y", "some-server"]'
        if self.url and not is_http_url(self.url):
            return "url has to begin with http:// or https:// and name a host"
        if not all(isinstance(value, str) for value in self.env.values()):  # pyright: ignore[reportUnnecessaryIsInstance] -- as below
            return "env has a value that is no text; put each in quotes"
        if self.url and self.env:
            return "env is for a server that a command starts; one behind a url has an environment of its own"
        return ""

    def _problem_of_headers(self) -> str:
        if self.command and self.headers:
            return "headers are for a server behind a url; give env to one that a command starts"
        if callable(self.headers):
            return ""
        return problem_of_headers(self.headers)

    def _problem_of_tools(self) -> str:
        for setting in ("tools", "idempotent", "needs_approval", "quick"):
            if isinstance(getattr(self, setting), str):
                return f'{setting} is a list of patterns, such as ["read_*"]'
        if not re.fullmatch(r"[A-Za-z0-9_-]*", self.prefix):
            return (
                f"prefix is {self.prefix!r}; models know letters, digits, '-' and '_' in the name of a tool"
            )
        if not isinstance(self.timeout, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance] -- authors may give anything
            return f"timeout is {self.timeout!r}; write timeout=timedelta(seconds={self.timeout!r})"
        if not timedelta(0) < self.timeout <= LONGEST:
            return f"timeout is {self.timeout}; give some time, and at most {LONGEST.days} days"
        return ""


def matches(tool: str, patterns: Sequence[str]) -> bool:
    """Return True if the name of a tool matches any of the patterns (`*`, `?`, `[…]`)."""
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
