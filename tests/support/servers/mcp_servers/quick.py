"""A handwritten MCP server that starts at once: `python quick.py`, over its standard input.

Its tools are about its process: its id, its environment, and its end.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PARAMETERS: dict[str, dict[str, str]] = {
    "pid": {},
    "environment": {},
    "die_once": {"mark": "string"},
    "hang": {"flag": "string"},
    "stick": {"flag": "string"},
}


def main() -> None:
    """Answer the requests in order until the input ends; a tool that hangs is not answered."""
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "id" in asked and (answer := _answer(asked)):
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}) + "\n")
            sys.stdout.flush()


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    match asked["method"]:
        case "initialize":
            about: dict[str, Any] = {
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "quick", "version": "1"},
            }
            return {"result": {"protocolVersion": "2025-06-18", **about}}
        case "tools/list":
            return {"result": {"tools": [_listed(name) for name in PARAMETERS]}}
        case "tools/call":
            arguments: dict[str, str] = asked["params"].get("arguments") or {}
            said = _call(asked["params"]["name"], **arguments)
            return {"result": {"content": [{"type": "text", "text": said}]}} if said else {}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def _listed(name: str) -> dict[str, Any]:
    properties = {parameter: {"type": kind} for parameter, kind in PARAMETERS[name].items()}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"name": name, "description": name, "inputSchema": schema}


def _call(tool: str, mark: str = "", flag: str = "") -> str:
    """Return the result of a tool."""
    match tool:
        case "pid":
            return str(os.getpid())
        case "environment":
            return str(dict(os.environ))
        case "die_once":  # if the mark exists already, it lives on
            if not Path(mark).exists():
                Path(mark).touch()
                os._exit(1)
            return "alive"
        case "hang":  # but answers others
            Path(flag).touch()
        case "stick":  # and reads no more input
            Path(flag).write_text(str(os.getpid()))
            time.sleep(600)
        case _:
            pass
    return ""


if __name__ == "__main__":
    main()
