"""Secrets of an MCP server's definition are removed from its output."""

import pytest

from everloop.agents.mcp.mcp_results import Concealment

HIDING = Concealment(
    "https://user:url-password@tools.example/mcp?key=query-key",
    {"Authorization": "Bearer abcdefgh", "X-Tenant": "acme-corp", "X-Short-Token": "abc"},
    {"API_KEY": "from-environment"},
)


@pytest.mark.parametrize(
    "secret", ["Bearer abcdefgh", "abcdefgh", "url-password", "query-key", "from-environment"]
)
def test_secrets_are_hidden_everywhere(secret: str) -> None:
    """With and without the scheme of their header."""
    assert HIDING.in_error(f"no {secret}!") == "no [secret]!"
    assert HIDING.in_result(f"no {secret}!") == "no [secret]!"


def test_values_that_are_no_secrets_are_hidden_in_errors_only() -> None:
    """A result may contain the tenant that it is for."""
    assert HIDING.in_error("acme-corp is unknown") == "[secret] is unknown"
    assert HIDING.in_result("sales of acme-corp") == "sales of acme-corp"


def test_what_is_too_short_is_not_looked_for() -> None:
    """It would be found in unrelated texts, as would the word Bearer."""
    assert HIDING.in_error("abc of a Bearer") == "abc of a Bearer"
