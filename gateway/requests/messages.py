"""Messages of clients: checked, in our own terms, and with the ids by which a repeated one is known. Pure.

Everything here raises A2A errors that name the field, what was wrong with it and what was expected; none
repeats the content of a message.
"""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value
from pydantic import JsonValue

from everloop.agents.agent import Agent
from everloop.gateway.errors import MessageChangedError
from everloop.gateway.requests.fields import MAX_PARTS, check_id, read_history_length
from everloop.gateway.requests.files import (
    BYTES,
    InputFile,
    input_files,
    read_file_part,
    read_filename,
    read_media_type,
)
from everloop.workflows.contract.messages import (
    DataPart,
    FilePart,
    Message,
    Part,
    TextPart,
    UserMessage,
    describe_parts,
)
from everloop.workflows.contract.names import (
    agent_task_id,
    derive_task_id,
    has_mark,
    key_mark,
    message_identity,
    unique_message_id,
    view_message_id,
)
from everloop.workflows.contract.questions import WITHHELD
from everloop.workflows.contract.tasks import TaskView

IDEMPOTENCY_KEY = "idempotency-key"
"""The header that makes a message the same as any other one with it, whatever its messageId."""

MAX_REFERENCES = 10
"""Tasks that a message may refer to: their results go to the model with it."""

MAX_EXACT_INTEGER = 2**53
"""Protobuf carries JSON numbers as doubles; up to here a whole one is exact."""

_OTHER_MESSAGE = "the header Idempotency-Key has come with another message; give each message its own"


@dataclass(frozen=True)
class IncomingMessage:
    """A message as its sender meant it, and which other messages are the same: clients repeat what was lost.

    The same is what has the same messageId and content; or the Idempotency-Key, if there is one, whatever the
    messageId. For agents that do not deduplicate no message is the same as another.
    """

    message: UserMessage
    """With the id that it has for its task: the same for what counts as repeated."""

    agent: Agent
    """Whom it is for."""

    owner: str
    """Whose it is."""

    files: tuple[InputFile, ...]
    """What the message says is stored; it has yet to be."""

    task_id: str
    """Of the task that it starts, or goes to."""

    is_new: bool
    """Whether it starts a task."""

    context_id: str
    """Empty: a new one."""

    digest: str
    """What tells one content of a message that starts a task from another."""

    references: tuple[str, ...]
    """Ids of other tasks."""

    key: str
    """The Idempotency-Key of the request, if it has one."""

    history_length: int | None
    return_immediately: bool
    push: pb.TaskPushNotificationConfig | None

    def check_digest(self, digest: str) -> None:
        """Pass unless the key of the request came with a message of another content before.

        Raises:
            InvalidParamsError: it did.
        """
        if self.key and digest and digest != self.digest:
            raise InvalidParamsError(_OTHER_MESSAGE)

    def find_candidate(self, message_ids: Iterable[str]) -> str | None:
        """Return which of these ids this message may have come under before; None if it is a new one."""
        view_id, identity = (
            view_message_id(self.message.message_id),
            message_identity(self.message.message_id),
        )
        return next(
            (
                known
                for known in message_ids
                if (self.key and has_mark(known, self.key))
                or view_message_id(known) == view_id
                or message_identity(known) == identity
            ),
            None,
        )

    def find_repeated(self, view: TaskView) -> str | None:
        """Return under which id a task has taken this very message in; None: it has not.

        What stands in place of a secret cannot be compared; nor is a secret passed on as something else
        because it comes again, whether the agent takes repeated messages or not.

        Raises:
            InvalidParamsError, MessageChangedError: another message came under the same id or key before.
        """
        is_elsewhere = self.key and self.context_id not in {"", view.context_id}
        if is_elsewhere or any(self._differs(known) for known in view.history):
            raise self.changed()
        taken = (known for known in view.history if isinstance(known, UserMessage))
        return next((known.message_id for known in taken if self._is_same(known)), None)

    def changed(self) -> InvalidParamsError | MessageChangedError:
        """Return what to say to who sent another message as one that has come before."""
        if self.key:
            return InvalidParamsError(_OTHER_MESSAGE)
        return MessageChangedError(view_message_id(self.message.message_id))

    def _is_same(self, known: UserMessage) -> bool:
        is_secret = bool(known.metadata.get(WITHHELD))
        if is_secret and not self.key:
            return view_message_id(known.message_id) == view_message_id(self.message.message_id)
        is_named_so = (
            has_mark(known.message_id, self.key) if self.key else known.message_id == self.message.message_id
        )
        return is_named_so and (is_secret or known.parts == self.message.parts)

    def _differs(self, known: Message) -> bool:
        """Whether a message of the history counts as the same and says something else."""
        is_same = message_identity(known.message_id) == message_identity(self.message.message_id)
        if not (isinstance(known, UserMessage) and is_same):
            return False
        return known.parts != self.message.parts and not known.metadata.get(WITHHELD)


def read_message(
    params: pb.SendMessageRequest, owner: str, agent: Agent, *, max_bytes: int, key: str = ""
) -> IncomingMessage:
    """Check a SendMessage or SendStreamingMessage request (A2A 1.0 §3.2.1).

    Raises:
        InvalidParamsError: a field is missing or malformed, or the message, not counting the bytes of its
            files, is larger than `max_bytes`.
        ContentTypeNotSupportedError: the agent does not take it, or gives nothing that the client takes.
    """
    if not params.HasField("message"):
        raise InvalidParamsError("message is missing; send one")
    configuration, sent = params.configuration, params.message
    has_push = configuration.HasField("task_push_notification_config")
    message = _read_message(sent, max_bytes)
    files = input_files(sent.parts)
    task_id = check_id(sent.task_id, "message.taskId") if sent.task_id else ""
    context_id = check_id(sent.context_id, "message.contextId") if sent.context_id else ""
    history_length = read_history_length(configuration)
    references = _read_references(sent.reference_task_ids)
    key = check_id(key, "the header Idempotency-Key") if key else ""
    check_content_types(params, agent)
    content = b"" if task_id else content_of(message, context_id, references)
    if key:
        new_id = derive_task_id(owner, agent.id, unique_message_id("", key), b"")
    elif agent.deduplicate:
        new_id = derive_task_id(owner, agent.id, message.message_id, content)
    else:
        new_id = agent_task_id(agent.id, str(uuid.uuid4()))
    if key or not agent.deduplicate:
        mark = key_mark(key) if key else uuid.uuid4().hex
        message = message.model_copy(update={"message_id": unique_message_id(message.message_id, mark)})
    return IncomingMessage(
        message=message,
        agent=agent,
        owner=owner,
        files=files,
        task_id=task_id or new_id,
        is_new=not task_id,
        context_id=context_id,
        digest=hashlib.sha256(content).hexdigest(),
        references=references,
        key=key,
        history_length=history_length,
        return_immediately=configuration.return_immediately,
        push=configuration.task_push_notification_config if has_push else None,
    )


def _read_references(task_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the ids, each once."""
    if len(task_ids) > MAX_REFERENCES:
        raise InvalidParamsError(
            f"message.referenceTaskIds has {len(task_ids)} ids; a message may refer to {MAX_REFERENCES} tasks"
        )
    named = (check_id(id_, f"message.referenceTaskIds[{index}]") for index, id_ in enumerate(task_ids))
    return tuple(dict.fromkeys(named))


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


# Whether an agent can take what a message brings, and give what its client can take.
#
# Source: A2A 1.0 §3.1.1 and §3.3.2 (ContentTypeNotSupportedError), §3.2.2 (acceptedOutputModes).

_UNNAMED = {"text": "text/plain", "data": "application/json", "raw": BYTES, "url": BYTES}
"""What a part without a media type is."""


def check_content_types(params: pb.SendMessageRequest, agent: Agent) -> None:
    """Pass if the agent takes every part of the message, and the client something that the agent gives.

    An agent that names no modes takes and gives anything.

    Raises:
        ContentTypeNotSupportedError: it names the part or the modes, and what would do.
    """
    for index, part in enumerate(params.message.parts):
        media_type = part.media_type or _UNNAMED.get(part.WhichOneof("content") or "", "text/plain")
        if agent.input_modes and not _fits_any(media_type, agent.input_modes):
            raise ContentTypeNotSupportedError(
                f"message.parts[{index}] is {media_type[:100]!r}; agent {agent.id!r} takes "
                f"{', '.join(agent.input_modes)}"
            )
    accepted = params.configuration.accepted_output_modes
    if accepted and agent.output_modes and not any(_meet(mode, agent.output_modes) for mode in accepted):
        raise ContentTypeNotSupportedError(
            f"configuration.acceptedOutputModes has nothing that agent {agent.id!r} gives: "
            f"{', '.join(agent.output_modes)}; accept one of these, or leave it out"
        )


def _meet(accepted: str, given: Sequence[str]) -> bool:
    """Whether a mode that a client accepts, which may be a range, is one that an agent gives."""
    return _fits_any(accepted, given) or any(_fits(mode, accepted) for mode in given)


def _fits_any(media_type: str, modes: Sequence[str]) -> bool:
    return any(_fits(media_type, mode) for mode in modes)


def _fits(media_type: str, mode: str) -> bool:
    """Whether a type is what a mode says. Modes may be ranges (`image/*`), and, as 0.3 wrote, `text`."""
    kind, _, subtype = media_type.partition(";")[0].strip().lower().partition("/")
    wanted, _, wanted_subtype = mode.partition(";")[0].strip().lower().partition("/")
    return wanted in {"*", kind} and (wanted_subtype in {"", "*", subtype} or not subtype)
