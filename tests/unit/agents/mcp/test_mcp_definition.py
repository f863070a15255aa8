"""Definitions of MCP servers in an agent."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from everloop import mcp
from everloop.agents.errors import AgentDefinitionError

URL = "https://tools.example/mcp"

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no server": ({}, "either the url"),
    "a command in one text": ({"command": "npx server"}, "a list of words"),
    "another protocol": ({"url": "ftp://tools.example"}, "http:// or https://"),
    "an environment for a url": ({"url": URL, "env": {"A": "b"}}, "env is for"),
    "headers for a command": ({"command": ["server"], "headers": {"a": "b"}}, "headers are for"),
    "a header that is none": ({"url": URL, "headers": {"a b": "c"}}, "'a b' is no name"),
    "a value of two lines": ({"url": URL, "headers": {"a": "hidden\nb"}}, "the header 'a'"),
    "one pattern as a text": ({"url": URL, "tools": "read_*"}, "tools is a list of patterns"),
    "a prefix with a dot": ({"url": URL, "prefix": "a."}, "prefix is 'a.'"),
    "too much time": ({"url": URL, "timeout": timedelta(days=9999)}, "3650 days"),
}


@pytest.mark.parametrize(("settings", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_wrong_definition_is_refused(settings: Mapping[str, Any], told: str) -> None:
    """The error names the field to change, and no value of a header."""
    with pytest.raises(AgentDefinitionError, match="mcp") as refused:
        mcp(**settings)

    assert told in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_whoever_loads_agents_imports_nothing_of_mcp() -> None:
    """A gateway loads the same definitions as a worker, and never calls a server."""
    program = (
        f"import sys; from everloop import mcp; mcp({URL!r});"
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'httpx2')])"
    )

    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"
