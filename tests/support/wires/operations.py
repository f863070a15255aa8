"""The operations of A2A, by their names in 1.0, and their wire forms in each version."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from a2a.types import a2a_pb2 as pb
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

Json = dict[str, Any]

HOOK = "https://hooks.example/x"


@dataclass(frozen=True)
class Operation:
    """An operation: its answer and its place in REST (§5.3), with fields of the request in braces.

    `method` is its name on JSON-RPC in 0.3, empty where it has none; `rpc` on gRPC, where that differs.
    """

    answer: type[Message]
    verb: str
    path: str
    method: str = ""
    rpc: str = ""
    streams: bool = False


_CONFIGS = "/tasks/{taskId}/pushNotificationConfigs"
_CONFIG = "tasks/pushNotificationConfig"

OPERATIONS: dict[str, Operation] = {
    "SendMessage": Operation(pb.SendMessageResponse, "POST", "/message:send", "message/send"),
    "SendStreamingMessage": Operation(
        pb.StreamResponse, "POST", "/message:stream", "message/stream", streams=True
    ),
    "GetTask": Operation(pb.Task, "GET", "/tasks/{id}", "tasks/get"),
    "ListTasks": Operation(pb.ListTasksResponse, "GET", "/tasks"),
    "CancelTask": Operation(pb.Task, "POST", "/tasks/{id}:cancel", "tasks/cancel"),
    "SubscribeToTask": Operation(
        pb.StreamResponse,
        "POST",
        "/tasks/{id}:subscribe",
        "tasks/resubscribe",
        "TaskSubscription",
        streams=True,
    ),
    "CreateTaskPushNotificationConfig": Operation(
        pb.TaskPushNotificationConfig, "POST", _CONFIGS, f"{_CONFIG}/set"
    ),
    "GetTaskPushNotificationConfig": Operation(
        pb.TaskPushNotificationConfig, "GET", f"{_CONFIGS}/{{id}}", f"{_CONFIG}/get"
    ),
    "ListTaskPushNotificationConfigs": Operation(
        pb.ListTaskPushNotificationConfigsResponse,
        "GET",
        _CONFIGS,
        f"{_CONFIG}/list",
        "ListTaskPushNotificationConfig",
    ),
    "DeleteTaskPushNotificationConfig": Operation(Empty, "DELETE", f"{_CONFIGS}/{{id}}", f"{_CONFIG}/delete"),
    "GetExtendedAgentCard": Operation(
        pb.AgentCard, "GET", "/extendedAgentCard", "agent/getAuthenticatedExtendedCard", "GetAgentCard"
    ),
}

LEGACY = [name for name, operation in OPERATIONS.items() if operation.method]
"""The operations of 0.3."""


def params_of(
    operation: str, task_id: str = "", config_id: str = "c1", refers_to: tuple[str, ...] = ()
) -> Json:
    """Return valid parameters of 1.0; a send without a task starts one."""
    match operation:
        case "SendMessage" | "SendStreamingMessage":
            message: Json = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            message |= {"taskId": task_id} if task_id else {}
            message |= {"referenceTaskIds": [*refers_to]} if refers_to else {}
            return {"message": message, "configuration": {"returnImmediately": True}}
        case "GetTask" | "CancelTask" | "SubscribeToTask":
            return {"id": task_id}
        case "CreateTaskPushNotificationConfig":
            return {"taskId": task_id, "id": config_id, "url": HOOK}
        case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig":
            return {"taskId": task_id, "id": config_id}
        case "ListTaskPushNotificationConfigs":
            return {"taskId": task_id}
        case _:
            return {}


def legacy_params(operation: str, params: Json) -> Json:
    """Return parameters of 1.0 in the JSON-RPC form of 0.3."""
    match operation:
        case "SendMessage" | "SendStreamingMessage":
            message = params["message"]
            parts = [_legacy_part(part) for part in message["parts"]]
            message = {**message, "kind": "message", "role": "user", "parts": parts}
            return {"message": message, **_legacy_configuration(params)}
        case "CreateTaskPushNotificationConfig":
            config = {name: value for name, value in params.items() if name != "taskId"}
            return {"taskId": params["taskId"], "pushNotificationConfig": config}
        case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig":
            return {"id": params["taskId"], "pushNotificationConfigId": params["id"]}
        case "ListTaskPushNotificationConfigs":
            return {"id": params["taskId"]}
        case _:
            return params


def _legacy_configuration(params: Json) -> Json:
    if "configuration" not in params:
        return {}
    return {"configuration": {"blocking": not params["configuration"].get("returnImmediately")}}


def _legacy_part(part: Json) -> Json:
    match part:
        case {"raw": raw}:
            return {"kind": "file", "file": {"bytes": raw}}
        case {"data": data}:
            return {"kind": "data", "data": {"a": data}}
        case _:
            return {"kind": "text", **part}


def legacy_proto(operation: str, params: Json) -> Json:
    """Return parameters of 1.0 as protobuf messages of 0.3, which name tasks by their paths."""
    if operation in {"SendMessage", "SendStreamingMessage"}:
        message: Mapping[str, Any] = params["message"]
        rest = {name: value for name, value in message.items() if name not in {"parts", "referenceTaskIds"}}
        content = [_legacy_proto_part(part) for part in message["parts"]]
        return {"request": {**rest, "content": content}, **_legacy_configuration(params)}
    task = f"tasks/{params.get('taskId', params.get('id', ''))}"
    config = f"{task}/pushNotificationConfigs/{params.get('id', '')}"
    match operation:
        case "CreateTaskPushNotificationConfig":
            inner = {"id": params["id"], "url": params["url"]}
            wanted = {"name": config, "pushNotificationConfig": inner}
            return {"parent": task, "configId": params["id"], "config": wanted}
        case "ListTaskPushNotificationConfigs":
            return {"parent": task}
        case "GetExtendedAgentCard":
            return {}
        case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig":
            return {"name": config}
        case _:
            return {"name": task}


def _legacy_proto_part(part: Json) -> Json:
    match part:
        case {"raw": raw}:
            return {"file": {"fileWithBytes": base64.b64encode(raw.encode()).decode()}}
        case {"data": data}:
            return {"data": {"data": {"a": data}}}
        case _:
            return part
