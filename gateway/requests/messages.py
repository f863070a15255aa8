"""What clients send, checked and in our own terms. Pure.

Everything here raises A2A errors that name the field, what was wrong with it and what was expected; none
repeats the content of a message.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE, MAX_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value
from pydantic import JsonValue

from everloop.gateway.context import Viewer
from everloop.gateway.requests.files import (
    InputFile,
    input_files,
    read_file_part,
    read_filename,
    read_media_type,
)
from everloop.runtime.protocol.tasks import STATES_BY_NUMBER
from everloop.stores.views.interface import TaskQuery
from everloop.workflows.contract.messages import (
    DataPart,
    FilePart,
    Part,
    TextPart,
    UserMessage,
    describe_parts,
)
from everloop.workflows.contract.parts import PATH_STEPS
from everloop.workflows.contract.questions import WITHHELD

MAX_ID_BYTES = 255
"""Ids become workflow ids, update ids and keyword search attributes; Temporal may refuse longer ones."""

MAX_REFERENCES = 10
"""Tasks that a message may refer to: their results go to the model with it."""

MAX_PARTS = 1000
"""Parts of a message. Each costs some work wherever the message goes; files have a limit of their own."""

MAX_EXACT_INTEGER = 2**53
"""Protobuf carries JSON numbers as doubles; up to here a whole one is exact."""


@dataclass(frozen=True)
class SendRequest:
    """A message and what its sender wants back. Empty ids: a new task, a new context.

    The message says where its `files` are stored; they have yet to be. `references` are ids of other tasks.
    `key` is the Idempotency-Key of the request, if it has one.
    """

    message: UserMessage
    files: tuple[InputFile, ...]
    task_id: str
    context_id: str
    history_length: int | None
    return_immediately: bool
    push: pb.TaskPushNotificationConfig | None = None
    references: tuple[str, ...] = ()
    key: str = ""


def read_send_request(params: pb.SendMessageRequest, *, max_bytes: int, key: str = "") -> SendRequest:
    """Check a SendMessage or SendStreamingMessage request (A2A 1.0 §3.2.1).

    Raises:
        InvalidParamsError: a field is missing or malformed, or the message, not counting the bytes of its
            files, is larger than `max_bytes`.
    """
    if not params.HasField("message"):
        raise InvalidParamsError("message is missing; send one")
    configuration = params.configuration
    has_push = configuration.HasField("task_push_notification_config")
    message = params.message
    return SendRequest(
        message=_read_message(message, max_bytes),
        files=input_files(message.parts),
        task_id=check_id(message.task_id, "message.taskId") if message.task_id else "",
        context_id=check_id(message.context_id, "message.contextId") if message.context_id else "",
        history_length=read_history_length(configuration),
        return_immediately=configuration.return_immediately,
        push=configuration.task_push_notification_config if has_push else None,
        references=_read_references(message.reference_task_ids),
        key=check_id(key, "the header Idempotency-Key") if key else "",
    )


def _read_references(task_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the ids, each once."""
    if len(task_ids) > MAX_REFERENCES:
        raise InvalidParamsError(
            f"message.referenceTaskIds has {len(task_ids)} ids; a message may refer to {MAX_REFERENCES} tasks"
        )
    named = (check_id(id_, f"message.referenceTaskIds[{index}]") for index, id_ in enumerate(task_ids))
    return tuple(dict.fromkeys(named))


def check_id(value: str, field: str) -> str:
    """Return an id that is fit to be used as one.

    Raises:
        InvalidParamsError: it is empty, longer than 255 bytes, a step of a path, or has control characters.
    """
    if not value:
        raise InvalidParamsError(f"{field} is empty; give an id")
    size = len(value.encode())
    if size > MAX_ID_BYTES:
        raise InvalidParamsError(f"{field} has {size} bytes; an id may have {MAX_ID_BYTES}")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidParamsError(f"{field} has control characters; use letters, digits and punctuation")
    if value in PATH_STEPS:
        raise InvalidParamsError(f"{field} is a step of a path, not a name; give another id")
    return value


class HistoryLengthField(Protocol):
    """A request or configuration that may limit the history."""

    history_length: int

    def HasField(self, field_name: str, /) -> bool: ...  # noqa: N802 -- protobuf's name


def read_history_length(request: HistoryLengthField) -> int | None:
    """Return how many messages of the history are wanted; None means all (A2A 1.0 §3.2.4).

    Raises:
        InvalidParamsError: it is negative.
    """
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParamsError(f"historyLength is {request.history_length}; it must be 0 or more")
    return request.history_length


def read_list_request(params: pb.ListTasksRequest, viewer: Viewer) -> TaskQuery:
    """Check a ListTasks request (A2A 1.0 §3.1.4); the page size is 50 unless given.

    Raises:
        InvalidParamsError: the page size, the history length or the time is out of range.
    """
    page_size = params.page_size if params.HasField("page_size") else DEFAULT_LIST_TASKS_PAGE_SIZE
    if not 1 <= page_size <= MAX_LIST_TASKS_PAGE_SIZE:
        raise InvalidParamsError(f"pageSize is {page_size}; it must be 1 to {MAX_LIST_TASKS_PAGE_SIZE}")
    return TaskQuery(
        owner=viewer.owner,
        agent_id=viewer.agent_id,
        context_id=check_id(params.context_id, "contextId") if params.context_id else None,
        state=STATES_BY_NUMBER.get(params.status),
        updated_since=_read_oldest(params),
        page_size=page_size,
        page_token=params.page_token,
        with_history=read_history_length(params),
        with_artifacts=params.include_artifacts,
    )


def _read_oldest(params: pb.ListTasksRequest) -> int | None:
    """Return `statusTimestampAfter` in microseconds, rounded up: statuses of that very time match."""
    if not params.HasField("status_timestamp_after"):
        return None
    try:
        return -(-params.status_timestamp_after.ToNanoseconds() // 1_000)
    except ValueError:
        raise InvalidParamsError(
            "statusTimestampAfter is no time between the years 1 and 9999; give one as RFC 3339 writes it"
        ) from None


def content_of(message: UserMessage, context_id: str, references: Sequence[str] = ()) -> bytes:
    """Return the same bytes for the same content, whatever order its JSON objects were written in."""
    content = [context_id, describe_parts(message.parts), *references]
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def _read_message(message: pb.Message, max_bytes: int) -> UserMessage:
    if message.role != pb.ROLE_USER:
        raise InvalidParamsError("message.role must be ROLE_USER: a client speaks for the user")
    if WITHHELD in message.metadata.fields:
        raise InvalidParamsError(f"message.metadata.{WITHHELD} is for this server to set; leave it out")
    parsed = UserMessage(
        message_id=check_id(message.message_id, "message.messageId"),
        parts=_read_parts(message.parts),
        metadata=_read_struct(message.metadata, "message.metadata"),
        extensions=tuple(message.extensions),
    )
    size = len(parsed.model_dump_json().encode())
    if size > max_bytes:
        raise InvalidParamsError(
            f"the message has {size} bytes as JSON; this server takes {max_bytes}. Send less at once"
        )
    return parsed


def _read_parts(parts: Sequence[pb.Part]) -> tuple[Part, ...]:
    if not parts:
        raise InvalidParamsError("message.parts is empty; send at least one part with text, data or a file")
    if len(parts) > MAX_PARTS:
        raise InvalidParamsError(f"message.parts has {len(parts)} parts; one message may have {MAX_PARTS}")
    read = tuple(_read_part(part, f"message.parts[{index}]") for index, part in enumerate(parts))
    if not any(isinstance(part, DataPart | FilePart) or part.text.strip() for part in read):
        raise InvalidParamsError("message.parts has no content: all its texts are empty")
    return read


def _read_part(part: pb.Part, field: str) -> Part:
    media_type, filename = read_media_type(part, field), read_filename(part, field)
    metadata = _read_struct(part.metadata, f"{field}.metadata")
    match part.WhichOneof("content"):
        case "text":
            return TextPart(text=part.text, media_type=media_type, filename=filename, metadata=metadata)
        case "data":
            data = _read_value(part.data, field)
            return DataPart(data=data, media_type=media_type, filename=filename, metadata=metadata)
        case None:
            raise InvalidParamsError(f"{field} is empty; give it text, data, or a file as raw bytes or url")
        case _:
            return read_file_part(part, field).model_copy(update={"metadata": metadata})


def _read_struct(struct: Struct, field: str) -> dict[str, JsonValue]:
    return {key: _read_value(value, field) for key, value in struct.fields.items()}


def _read_value(value: Value, field: str) -> JsonValue:
    try:
        return _with_integers(MessageToDict(value))
    except ValueError as error:
        raise InvalidParamsError(f"{field} is not JSON: {error}") from error


def _with_integers(value: JsonValue) -> JsonValue:
    """Undo what the way through doubles did to whole numbers: 3 comes out as 3.0."""
    match value:
        case float() if value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
            return int(value)
        case list():
            return [_with_integers(item) for item in value]
        case dict():
            return {key: _with_integers(item) for key, item in value.items()}
        case _:
            return value
