"""What clients of each version of A2A put on the wire, for each operation.

An operation has the name of its method of the SDK's `RequestHandler`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

HOOK = "https://hooks.example/x"


@dataclass(frozen=True)
class Ask:
    """What is asked for: an operation on a task, its push config of that name, at the address of an agent.

    A send without a task starts one; `refers_to` are tasks that its message refers to.
    """

    operation: str
    task_id: str = ""
    config_id: str = "c1"
    agent: str = ""
    refers_to: tuple[str, ...] = ()


Params = Mapping[str, Callable[[Ask], dict[str, Any]]]


def _message(ask: Ask) -> dict[str, Any]:
    named = {"taskId": ask.task_id} if ask.task_id else {}
    refers = {"referenceTaskIds": [*ask.refers_to]} if ask.refers_to else {}
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hi"}], **named, **refers}
    return {"message": message, "configuration": {"returnImmediately": True}}


def _task(ask: Ask) -> dict[str, Any]:
    return {"id": ask.task_id}


def _config(ask: Ask) -> dict[str, Any]:
    return {"taskId": ask.task_id, "id": ask.config_id}


CURRENT: Params = {
    "on_message_send": _message,
    "on_message_send_stream": _message,
    "on_get_task": _task,
    "on_list_tasks": lambda _: {},
    "on_cancel_task": _task,
    "on_subscribe_to_task": _task,
    "on_create_task_push_notification_config": lambda ask: {**_config(ask), "url": HOOK},
    "on_get_task_push_notification_config": _config,
    "on_list_task_push_notification_configs": lambda ask: {"taskId": ask.task_id},
    "on_delete_task_push_notification_config": _config,
    "on_get_extended_agent_card": lambda _: {},
}

NAMES: Mapping[str, tuple[str, str]] = {  # of JSON-RPC and gRPC in 1.0, and of JSON-RPC in 0.3
    "on_message_send": ("SendMessage", "message/send"),
    "on_message_send_stream": ("SendStreamingMessage", "message/stream"),
    "on_get_task": ("GetTask", "tasks/get"),
    "on_list_tasks": ("ListTasks", ""),
    "on_cancel_task": ("CancelTask", "tasks/cancel"),
    "on_subscribe_to_task": ("SubscribeToTask", "tasks/resubscribe"),
    "on_create_task_push_notification_config": (
        "CreateTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/set",
    ),
    "on_get_task_push_notification_config": (
        "GetTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/get",
    ),
    "on_list_task_push_notification_configs": (
        "ListTaskPushNotificationConfigs",
        "tasks/pushNotificationConfig/list",
    ),
    "on_delete_task_push_notification_config": (
        "DeleteTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/delete",
    ),
    "on_get_extended_agent_card": ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"),
}


def _legacy_message(ask: Ask) -> dict[str, Any]:
    named = {"taskId": ask.task_id} if ask.task_id else {}
    refers = {"referenceTaskIds": [*ask.refers_to]} if ask.refers_to else {}
    known = {"kind": "message", "messageId": str(uuid4()), "role": "user", **named, **refers}
    message = {**known, "parts": [{"kind": "text", "text": "hi"}]}
    return {"message": message, "configuration": {"blocking": False}}


def _legacy_config(ask: Ask) -> dict[str, Any]:
    return {"id": ask.task_id, "pushNotificationConfigId": ask.config_id}


LEGACY: Params = {
    **{operation: CURRENT[operation] for operation in CURRENT if operation != "on_list_tasks"},
    "on_message_send": _legacy_message,
    "on_message_send_stream": _legacy_message,
    "on_create_task_push_notification_config": lambda ask: {
        "taskId": ask.task_id,
        "pushNotificationConfig": {"id": ask.config_id, "url": HOOK},
    },
    "on_get_task_push_notification_config": _legacy_config,
    "on_list_task_push_notification_configs": _task,
    "on_delete_task_push_notification_config": _legacy_config,
}


_CONFIGS = "/tasks/{task}/pushNotificationConfigs"
PATHS: Mapping[str, tuple[str, str]] = {
    "on_message_send": ("POST", "/message:send"),
    "on_message_send_stream": ("POST", "/message:stream"),
    "on_get_task": ("GET", "/tasks/{task}"),
    "on_list_tasks": ("GET", "/tasks"),
    "on_cancel_task": ("POST", "/tasks/{task}:cancel"),
    "on_subscribe_to_task": ("GET", "/tasks/{task}:subscribe"),
    "on_create_task_push_notification_config": ("POST", _CONFIGS),
    "on_get_task_push_notification_config": ("GET", f"{_CONFIGS}/{{config}}"),
    "on_list_task_push_notification_configs": ("GET", _CONFIGS),
    "on_delete_task_push_notification_config": ("DELETE", f"{_CONFIGS}/{{config}}"),
    "on_get_extended_agent_card": ("GET", "/extendedAgentCard"),
}


def legacy_proto(ask: Ask) -> dict[str, Any]:
    """Return the parameters as the protobuf messages of 0.3 have them, which name tasks by their paths."""
    task = f"tasks/{ask.task_id}"
    config = f"{task}/pushNotificationConfigs/{ask.config_id}"
    match ask.operation:
        case "on_message_send" | "on_message_send_stream":
            named = {"taskId": ask.task_id} if ask.task_id else {}
            message = {"messageId": str(uuid4()), "role": "ROLE_USER", "content": [{"text": "hi"}], **named}
            return {"request": message, "configuration": {"blocking": False}}
        case "on_create_task_push_notification_config":
            wanted = {"name": config, "pushNotificationConfig": {"id": ask.config_id, "url": HOOK}}
            return {"parent": task, "configId": ask.config_id, "config": wanted}
        case "on_list_task_push_notification_configs":
            return {"parent": task}
        case "on_get_extended_agent_card":
            return {}
        case "on_get_task_push_notification_config" | "on_delete_task_push_notification_config":
            return {"name": config}
        case _:
            return {"name": task}
