"""Repair of slightly invalid answers of MCP servers, before the SDK reads them.

The SDK rejects a whole answer for any part of it: all tools for one of them, and the result of a call
that has run. Removed parts are logged.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import structlog
from mcp import Client
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

_log = structlog.get_logger()


def repair_answers(client: Client, server: str) -> None:
    """Repair the answers of a server on an open connection."""
    # The SDK has no argument for it.
    dispatcher: Any = client.session._dispatcher  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- as above
    send = dispatcher.send_raw_request

    async def send_and_repair(method: str, *args: object, **settings: object) -> dict[str, Any]:
        answer: dict[str, Any] = await send(method, *args, **settings)
        if method == "tools/list" and (places := _misshapen(answer, client.protocol_version)):
            return {**answer, "tools": _usable(answer["tools"], places, server)}
        if method == "tools/call" and "structuredContent" in answer and answer.get("content") is None:
            return {**answer, "content": []}
        return answer

    dispatcher.send_raw_request = send_and_repair


def _misshapen(answer: Mapping[str, Any], version: str) -> Mapping[int, Sequence[str]]:
    """Return the SDK's errors in a list of tools, by the number of the tool.

    Empty if the list is valid, or if more than single tools is wrong.
    """
    found: dict[int, list[str]] = {}
    try:
        validate_server_result("tools/list", version, answer)
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_context=False, include_input=False):
            match problem["loc"]:
                case ("tools", int(number), *place):
                    found.setdefault(number, []).append(".".join(map(str, place)))
                case _:
                    return {}
    return found


def _usable(tools: Sequence[object], misshapen: Mapping[int, Sequence[str]], server: str) -> list[object]:
    """Return the valid tools; if only the `outputSchema` of one is wrong, without that."""
    usable: list[object] = []
    for number, tool in enumerate(tools):
        given = cast("dict[str, Any]", tool if isinstance(tool, dict) else {})
        about = {"server": server, "tool": str(given.get("name", number)), "problem": misshapen.get(number)}
        if number not in misshapen:
            usable.append(given)
        elif all(place.startswith("outputSchema") for place in misshapen[number]):
            usable.append({key: value for key, value in given.items() if key != "outputSchema"})
            _log.warning("results of an MCP tool are not checked", **about)
        else:
            _log.warning("tool of an MCP server left out", **about)
    return usable
