"""Repair of slightly invalid results of MCP servers, before the SDK reads them.

The SDK rejects a whole result for any part of it: all tools for one of them, and the result of a call
that has run. Removed parts are logged.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import structlog
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

_log = structlog.get_logger()


def repaired(result: dict[str, Any], server: str, output_schemas: dict[str, object]) -> dict[str, Any]:
    """Return a result that the SDK accepts; any other one as it is.

    Every `outputSchema` in a list of tools goes into `output_schemas`, by the name of the tool. By those
    that it reads, the SDK would check results with Python's `re`, on the event loop.
    """
    match result:
        case {"structuredContent": _} if result.get("content") is None:
            return {**result, "content": []}
        case {"tools": list()}:
            plain = [_without_schema(tool, output_schemas) for tool in result["tools"]]
            return {**result, "tools": _usable(plain, server)}
        case _:
            return result


def _without_schema(tool: object, output_schemas: dict[str, object]) -> object:
    if not isinstance(tool, dict):
        return tool
    given = cast("dict[str, Any]", tool)
    output_schemas[str(given.get("name"))] = given.get("outputSchema")
    return {key: value for key, value in given.items() if key != "outputSchema"}


def _usable(tools: Sequence[object], server: str) -> Sequence[object]:
    """Return the valid tools."""
    misshapen = _misshapen(tools)
    for number, places in misshapen.items():
        tool = tools[number]
        name = cast("dict[str, Any]", tool).get("name", number) if isinstance(tool, dict) else number
        _log.warning("tool of an MCP server left out", server=server, tool=str(name), problem=places)
    return [tool for number, tool in enumerate(tools) if number not in misshapen]


def _misshapen(tools: Sequence[object]) -> Mapping[int, Sequence[str]]:
    """Return what is wrong with tools, by their number, by the strictest rules of all versions of MCP."""
    found: dict[int, list[str]] = {}
    try:
        validate_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": tools})
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_context=False, include_input=False):
            _, number, *place = problem["loc"]
            found.setdefault(int(number), []).append(".".join(map(str, place)))
    return found
