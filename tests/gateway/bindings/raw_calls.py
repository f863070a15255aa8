"""The same operations on each binding over HTTP as plain requests: for what the official client hides."""

from dataclasses import dataclass, field
from typing import Any

import httpx

Call = dict[str, Any]
"""What httpx needs for a request."""


def changed(call: Call, **changes: object) -> Call:
    """Return a call with other arguments in the place of its own."""
    return {**call, **changes}


@dataclass(frozen=True)
class RawBinding:
    """How a binding writes requests and reads errors. `is_rest`: by addresses, not by methods."""

    name: str
    version: str
    is_rest: bool
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        return self.name

    def send(self, text: str, message_id: str, *, stream: bool = False) -> Call:
        """Return what httpx needs to send a message."""
        message: dict[str, Any] = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
        if self.version == "0.3" and self.is_rest:
            message = {"messageId": message_id, "role": "ROLE_USER", "content": [{"text": text}]}
        elif self.version == "0.3":
            part = {"kind": "text", "text": text}
            message = {"messageId": message_id, "role": "user", "parts": [part]}
        return self.send_params({"message": message}, stream=stream)

    def send_params(self, params: object, *, stream: bool = False) -> Call:
        """Return what httpx needs to send a message with these parameters."""
        if self.is_rest:
            return self._call("POST", f"message:{'stream' if stream else 'send'}", params)
        names = ("SendMessage", "SendStreamingMessage", "message/send", "message/stream")
        return self._rpc(names[2 * (self.version == "0.3") + stream], params)

    def get(self, task_id: str) -> Call:
        """Return what httpx needs to read a task."""
        if self.is_rest:
            return self._call("GET", f"tasks/{task_id}")
        return self._rpc("tasks/get" if self.version == "0.3" else "GetTask", {"id": task_id})

    def subscribe(self, task_id: str) -> Call:
        """Return what httpx needs to subscribe to a task."""
        if self.is_rest:
            return self._call("POST", f"tasks/{task_id}:subscribe")
        return self._rpc("tasks/resubscribe" if self.version == "0.3" else "SubscribeToTask", {"id": task_id})

    def body(self, content: bytes, **headers: str) -> Call:
        """Return what httpx needs to send a message with any body."""
        call = self.send_params({})
        call.pop("json")
        return {**call, "content": content, "headers": {**call["headers"], **headers}}

    def error(self, response: httpx.Response) -> dict[str, Any]:
        """Return the error of an answer: `message`, `reason`, and `code` of JSON-RPC or of HTTP."""
        error = response.json()["error"]
        (info, *_) = error["details"] if self.is_rest else error["data"]
        assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
        assert info["domain"] == "a2a-protocol.org"
        return {"message": error["message"], "code": error["code"], "reason": info["reason"]}

    def result(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return what an answer or an event holds."""
        return event if self.is_rest else event["result"]

    def _call(self, method: str, path: str, params: object = None) -> Call:
        url = f"/v1/{path}" if self.version == "0.3" else f"/{path}"
        body = {} if params is None else {"json": params}
        return {"method": method, "url": url, "headers": {**self.headers}, **body}

    def _rpc(self, method: str, params: object) -> Call:
        body = {"jsonrpc": "2.0", "id": "r1", "method": method, "params": params}
        return {"method": "POST", "url": "/", "headers": {**self.headers}, "json": body}


RAW_BINDINGS = [
    RawBinding("JSON-RPC 1.0", "1.0", is_rest=False, headers={"A2A-Version": "1.0"}),
    RawBinding("REST 1.0", "1.0", is_rest=True, headers={"A2A-Version": "1.0"}),
    RawBinding("JSON-RPC 0.3", "0.3", is_rest=False),
    RawBinding("REST 0.3", "0.3", is_rest=True),
]
