"""A2A 0.3: its operations on every binding, and its addresses of HTTP+JSON, under /v1."""

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3 import types as types03
from a2a.compat.v0_3.proto_utils import FromProto, ToProto
from a2a.server.context import ServerCallContext
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from pydantic import BaseModel

from everloop.gateway.bindings.rest import RestCall, RestCalls, Write, read_query
from everloop.gateway.http.requests import A2ARequest
from everloop.gateway.operations.operation import OPERATIONS, Operation
from everloop.gateway.requests.proto import is_strict_base64, read_params

if TYPE_CHECKING:
    from a2a.server.request_handlers.request_handler import RequestHandler


def serve_legacy(
    handler: "RequestHandler", operation: Operation, params: BaseModel, context: ServerCallContext
) -> Any:  # noqa: ANN401 -- something to await, or a stream
    """Begin an operation of A2A 0.3."""
    from everloop.gateway.bindings.legacy_handler import LegacyHandler  # noqa: PLC0415 -- see its head

    return getattr(LegacyHandler(handler), operation.method)(params, context)


LEGACY_REQUESTS: Mapping[str, type[BaseModel]] = {
    "SendMessage": types03.SendMessageRequest,
    "SendStreamingMessage": types03.SendStreamingMessageRequest,
    "GetTask": types03.GetTaskRequest,
    "CancelTask": types03.CancelTaskRequest,
    "SubscribeToTask": types03.TaskResubscriptionRequest,
    "CreateTaskPushNotificationConfig": types03.SetTaskPushNotificationConfigRequest,
    "GetTaskPushNotificationConfig": types03.GetTaskPushNotificationConfigRequest,
    "ListTaskPushNotificationConfigs": types03.ListTaskPushNotificationConfigRequest,
    "DeleteTaskPushNotificationConfig": types03.DeleteTaskPushNotificationConfigRequest,
    "GetExtendedAgentCard": types03.GetAuthenticatedExtendedCardRequest,
}
"""By the names of the operations in A2A 1.0."""


# The bytes of files. The definition of the service has them as they are. The SDK for Python writes base64
# there, and fails at anything else; so its clients get base64, and all others bytes.

_PYTHON_CLIENTS = ("python-httpx/", "grpc-python")
"""How the user agents of that SDK begin."""


def use_client_files(message: Message, headers: Mapping[str, str]) -> Message:
    """Write the bytes of files, which the SDK has in base64, as the client with these headers reads them."""
    if not _is_python(headers):
        for file in _files(message):
            file.file_with_bytes = b64decode(file.file_with_bytes)
    return message


def use_sdk_files(request: pb03.SendMessageRequest, headers: Mapping[str, str]) -> None:
    """Write the bytes of files in base64, as the SDK reads them, if the client has not."""
    for file in _files(request):
        if not (_is_python(headers) and is_strict_base64(file.file_with_bytes.decode("latin-1"))):
            file.file_with_bytes = b64encode(file.file_with_bytes)


def _is_python(headers: Mapping[str, str]) -> bool:
    return headers.get("user-agent", "").startswith(_PYTHON_CLIENTS)


def _files(message: Message) -> Iterator[pb03.FilePart]:
    """Yield all files with bytes in a message of A2A 0.3."""
    if isinstance(message, pb03.FilePart):
        if message.HasField("file_with_bytes"):
            yield message
        return
    for field, value in message.ListFields():
        if field.message_type and field.message_type.file.name == pb03.DESCRIPTOR.name:
            for each in (value,) if isinstance(value, Message) else value:
                yield from _files(each)


def check_parts(request: pb03.SendMessageRequest) -> None:
    """Refuse a message with a part that holds nothing; the SDK would fail on it.

    Raises:
        InvalidParamsError: it has one.
    """
    for index, part in enumerate(request.request.content):
        if part.WhichOneof("part") is None or (part.HasField("file") and not part.file.WhichOneof("file")):
            raise InvalidParamsError(
                f"message.content[{index}] is empty; "
                "it needs a text, data, or a file with its address or bytes"
            )


Read = Callable[[type[BaseModel], A2ARequest], Awaitable[BaseModel]]


def legacy_rest_calls(handler: "RequestHandler") -> RestCalls:
    """Return all addresses, and what each HTTP method does there."""

    def call(name: str, write: Write, read: Read = _read_path) -> RestCall:
        operation = OPERATIONS[name]
        serve = partial(serve_legacy, handler, operation)
        return RestCall(operation, partial(read, LEGACY_REQUESTS[name]), serve, write)

    configs = "/v1/tasks/{id}/pushNotificationConfigs"
    task, config = _written(ToProto.task), _written(ToProto.task_push_notification_config)
    event = _written(lambda each: ToProto.stream_response(each.result))
    subscribe = call("SubscribeToTask", event)
    return {
        "/v1/message:send": {"POST": call("SendMessage", _written(ToProto.task_or_message), _read_message)},
        "/v1/message:stream": {"POST": call("SendStreamingMessage", event, _read_message)},
        "/v1/tasks/{id}:cancel": {"POST": call("CancelTask", task)},
        "/v1/tasks/{id}:subscribe": {"GET": subscribe, "POST": subscribe},
        "/v1/tasks/{id}": {"GET": call("GetTask", task, _read_get)},
        f"{configs}/{{push_notification_config_id}}": {
            "GET": call("GetTaskPushNotificationConfig", config),
            "DELETE": call("DeleteTaskPushNotificationConfig", _write_nothing),
        },
        configs: {
            "GET": call("ListTaskPushNotificationConfigs", _write_configs),
            "POST": call("CreateTaskPushNotificationConfig", config, _read_set_config),
        },
        "/v1/card": {"GET": call("GetExtendedAgentCard", _write_card)},
    }


async def _read_path(kind: type[BaseModel], request: A2ARequest) -> BaseModel:
    """Read a request whose parameters stand in its path, under their own names."""
    names = request.path_params.keys() & {"id", "push_notification_config_id"}
    params = {"params": {name: request.path_params[name] for name in names}} if names else {}
    return kind.model_validate({"id": "", **params})


async def _read_message(kind: type[BaseModel], request: A2ARequest) -> BaseModel:
    message = read_params(pb03.SendMessageRequest, await request.json())
    check_parts(message)
    use_sdk_files(message, request.headers)
    return kind.model_validate({"id": "", "params": FromProto.message_send_params(message)})


async def _read_get(kind: type[BaseModel], request: A2ARequest) -> BaseModel:
    sent = read_query(pb03.GetTaskRequest, request.query_params)
    names = ("historyLength", "history_length")
    is_given = any(text for name in names for text in request.query_params.getlist(name))
    length = sent.history_length if is_given else None
    return kind.model_validate(
        {"id": "", "params": {"id": request.path_params["id"], "history_length": length}}
    )


async def _read_set_config(kind: type[BaseModel], request: A2ARequest) -> BaseModel:
    """Read a config of the task in the address; the SDK reads task and id from elsewhere in the body.

    The body is the request, as the SDK's clients send it, or its `config` alone, as the definition of the
    service says.
    """
    body: object = await request.json()
    has_envelope = not isinstance(body, dict) or "config" in body
    sent = cast("object", body) if has_envelope else {"config": cast("object", body)}
    message = read_params(pb03.CreateTaskPushNotificationConfigRequest, sent)
    message.parent = f"tasks/{request.path_params['id']}"
    config = message.config.push_notification_config
    config.id = config.id or message.config_id or message.config.name.rpartition("/")[2]
    params = FromProto.task_push_notification_config_request(message)
    params.task_id = request.path_params["id"]
    return kind.model_validate({"id": "", "params": params})


def _written(convert: Callable[[Any], Message]) -> Write:
    """Return what makes JSON of a result that is written as a message."""
    return lambda result, request: MessageToDict(use_client_files(convert(result), request.headers))


def _write_configs(configs: list[types03.TaskPushNotificationConfig], _: A2ARequest) -> dict[str, Any]:
    return MessageToDict(
        pb03.ListTaskPushNotificationConfigResponse(
            configs=map(ToProto.task_push_notification_config, configs)
        )
    )


def _write_card(card: types03.AgentCard, _: A2ARequest) -> dict[str, Any]:
    return card.model_dump(mode="json", exclude_none=True)


def _write_nothing(_: None, __: A2ARequest) -> dict[str, Any]:
    return {}
