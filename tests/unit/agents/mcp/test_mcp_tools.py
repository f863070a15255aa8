"""Tools of an MCP server, as offered to models."""

from collections.abc import Sequence
from typing import Any

import pytest
from mcp_types import Tool, ToolAnnotations

from everloop.agents.mcp.mcp_client import is_idempotent, is_quick, names_of, needs_approval
from everloop.agents.mcp.mcp_definition import McpDefinition

Setting = bool | Sequence[str] | None


def listed(**hints: Any) -> Tool:  # noqa: ANN401 -- hints of any kind
    annotations = ToolAnnotations(**hints) if hints else None
    return Tool(name="write_file", input_schema={"type": "object"}, annotations=annotations)


@pytest.mark.parametrize(
    ("hints", "setting", "repeatable"),
    [
        ({}, None, False),
        ({"read_only_hint": True}, None, True),
        ({"idempotent_hint": True}, None, True),
        ({"idempotent_hint": True}, False, False),
        ({}, True, True),
        ({}, ["write_*"], True),
    ],
)
def test_what_may_be_repeated(hints: dict[str, bool], setting: Setting, *, repeatable: bool) -> None:
    """The definition decides, otherwise the server's annotations."""
    assert is_idempotent(listed(**hints), McpDefinition(url="http://a", idempotent=setting)) is repeatable


@pytest.mark.parametrize(
    ("hints", "setting", "quick"),
    [
        ({"idempotent_hint": True}, False, False),
        ({"idempotent_hint": True}, True, True),
        ({"idempotent_hint": True}, ["write_*"], True),
        ({"idempotent_hint": True}, ["read_*"], False),
        ({}, True, False),
    ],
)
def test_what_runs_as_a_quick_tool(hints: dict[str, bool], setting: Setting, *, quick: bool) -> None:
    """The definition decides for tools that may be repeated."""
    assert is_quick(listed(**hints), McpDefinition(url="http://a", quick=setting)) is quick


@pytest.mark.parametrize(
    ("hints", "setting", "asks"),
    [
        ({}, None, False),
        ({"destructive_hint": True}, None, True),
        ({"destructive_hint": True, "read_only_hint": True}, None, False),
        ({"destructive_hint": True}, False, False),
        ({}, True, True),
        ({}, ["write_*"], True),
    ],
)
def test_what_people_are_asked_about(hints: dict[str, bool], setting: Setting, *, asks: bool) -> None:
    """A tool without annotations counts as harmless, though MCP counts it as destructive."""
    definition = McpDefinition(url="http://a", needs_approval=setting)
    assert needs_approval(listed(**hints), definition) is asks


@pytest.mark.parametrize(
    ("tools", "prefix", "names"),
    [
        (["read", "write"], "", {"read": "read", "write": "write"}),
        (["read"], "fs_", {"fs_read": "read"}),
        (["files/read", "größe"], "", {"files_read": "files/read", "gr__e": "größe"}),
        (["a" * 100], "", {"a" * 64: "a" * 100}),
    ],
)
def test_names_fit_what_models_know(tools: list[str], prefix: str, names: dict[str, str]) -> None:
    """Each other character becomes an underscore, and the name is cut to 64."""
    assert names_of(tools, prefix) == names


def test_tools_that_would_share_a_name_keep_apart() -> None:
    """In any order each has the same name; one that needs no change keeps it."""
    names = names_of(["a.b", "a_b", "a/b"], "")

    assert set(names.values()) == {"a.b", "a_b", "a/b"}
    assert names["a_b"] == "a_b"
    assert names == names_of(["a/b", "a_b", "a.b"], "")
    assert all(len(name) <= 64 for name in names_of(["x" * 70 + "1", "x" * 70 + "2"], ""))
    assert len(names_of(["x" * 70 + "1", "x" * 70 + "2"], "")) == 2
