"""A handwritten MCP server with malformed output. Run it as `python odd.py`.

Its tools are named for their action: `log` writes lines to its standard output that are not messages.
"""

import json
import sys
from typing import Any

TOOLS = ("log", "refuse", "blank", "plain")
_SAID = {"content": [{"type": "text", "text": "done"}]}
_BLANK = {"content": [{"type": "text", "text": None}]}
_NOISE = b"DEBUG: called\n\n{}\n[1]\ncaf\xe9 \xff\n"


def main() -> None:
    """Answer each line of the input until it ends."""
    _write(_NOISE)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "id" in asked:
            if asked.get("params", {}).get("name") == "log":
                _write(_NOISE)
            answer = {"jsonrpc": "2.0", "id": asked["id"], **answer_to(asked)}
            _write(json.dumps(answer).encode() + b"\n")


def answer_to(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the result, or the error, of a request."""
    match asked["method"]:
        case "initialize":
            server = {"name": "odd", "version": "1"}
            about: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
            return {"result": about}
        case "tools/list":
            tools = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            return {"result": {"tools": tools}}
        case "tools/call":
            return {"result": _BLANK if asked["params"]["name"] == "blank" else _SAID}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
