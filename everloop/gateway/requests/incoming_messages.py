"""Messages of clients: validated, in our own terms, with ids that identify retries. Pure.

All functions raise A2A errors that name the field, the problem and the expected value. None repeats the
content of a message.
"""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from everloop.agents.agent import Agent
from everloop.gateway.errors import KeyReusedError, MessageChangedError
from everloop.gateway.requests.fields import check_id, read_history_length
from everloop.gateway.requests.incoming_parts import (
    InputFile,
    check_content_types,
    read_parts,
    read_struct,
    with_files,
)
from everloop.workflows.contract.messages import Message, Part, UserMessage, describe_parts
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
"""Header that identifies retries of a message, whatever its messageId."""

MAX_REFERENCES = 10
"""Maximum tasks that a message refers to. Their results are sent to the model. A chat may name all its
tasks."""


@dataclass(frozen=True)
class IncomingMessage:
    """Validated message, with the rules by which other messages are its retries.

    A retry has the same messageId and content; or the same Idempotency-Key, if there is one, whatever
    the messageId. For agents that do not deduplicate, no message is a retry of another.
    """

    message: UserMessage
    """With its id within the task, which is the same for retries."""

    agent: Agent
    """The agent that receives it."""

    owner: str
    """The owner of the task."""

    files: tuple[InputFile, ...]
    """Files of the message, not stored yet."""

    task_id: str
    """The task that it starts or continues."""

    is_new: bool
    """Whether it starts a task."""

    context_id: str
    """Empty for a new context."""

    digest: str
    """Digest of the content of a message that starts a task."""

    references: tuple[str, ...]
    """Ids of other tasks."""

    key: str
    """The Idempotency-Key of the request, or empty."""

    history_length: int | None
    return_immediately: bool
    push: pb.TaskPushNotificationConfig | None

    def check_digest(self, digest: str) -> None:
        """Check that the key of the request was not used with another content before.

        Raises:
            KeyReusedError: it was.
        """
        if self.key and digest and digest != self.digest:
            raise self.changed()

    def find_candidate(self, message_ids: Iterable[str]) -> str | None:
        """Return the id among these under which this message may have been received before, or None."""
        own = self.message.message_id
        view_id, identity = view_message_id(own), message_identity(own)
        for message_id in message_ids:
            if view_message_id(message_id) == view_id or message_identity(message_id) == identity:
                return message_id
            if self.key and has_mark(message_id, self.key):
                return message_id
        return None

    def find_repeated(self, view: TaskView) -> str | None:
        """Return the id under which a task has received this very message before, or None.

        The placeholder of a secret cannot be compared. A retried secret must not be forwarded as other
        content, even for agents that do not deduplicate.

        Raises:
            KeyReusedError, MessageChangedError: the key or id was used with another message.
        """
        is_elsewhere = self.key and self.context_id not in {"", view.context_id}
        if is_elsewhere or any(self._differs(earlier) for earlier in view.history):
            raise self.changed()
        taken = (earlier for earlier in view.history if isinstance(earlier, UserMessage))
        return next((earlier.message_id for earlier in taken if self._is_same(earlier)), None)

    def changed(self) -> KeyReusedError | MessageChangedError:
        """Return the error for another message with a key or id that was used before."""
        return KeyReusedError() if self.key else MessageChangedError(view_message_id(self.message.message_id))

    def _is_same(self, earlier: UserMessage) -> bool:
        is_secret = bool(earlier.metadata.get(WITHHELD))
        if is_secret and not self.key:
            return view_message_id(earlier.message_id) == view_message_id(self.message.message_id)
        is_named_so = (
            has_mark(earlier.message_id, self.key)
            if self.key
            else earlier.message_id == self.message.message_id
        )
        return is_named_so and (is_secret or earlier.parts == self.message.parts)

    def _differs(self, earlier: Message) -> bool:
        """Whether a message of the history has the same key or id, and another content."""
        is_same = message_identity(earlier.message_id) == message_identity(self.message.message_id)
        if not (isinstance(earlier, UserMessage) and is_same):
            return False
        return earlier.parts != self.message.parts and not earlier.metadata.get(WITHHELD)


def read_message(
    params: pb.SendMessageRequest, owner: str, agent: Agent, *, max_bytes: int, key: str = ""
) -> IncomingMessage:
    """Validate a SendMessage or SendStreamingMessage request (A2A 1.0 §3.2.1).

    Raises:
        InvalidParamsError: a field is missing or malformed, or the message, not counting the bytes of its
            files, is larger than `max_bytes`.
        ContentTypeNotSupportedError: the agent does not accept it, or returns no accepted type.
    """
    if not params.HasField("message"):
        raise InvalidParamsError("message is missing; send one")
    configuration, sent = params.configuration, params.message
    has_push = configuration.HasField("task_push_notification_config")
    parts, files = read_parts(sent.parts)
    message, converted = with_files(_read_message(sent, parts, max_bytes))
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
        files=tuple({file.artifact_id: file for file in (*files, *converted)}.values()),
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
    """Return the newest ids, which are the last ones, without duplicates."""
    named = [check_id(id_, f"message.referenceTaskIds[{index}]") for index, id_ in enumerate(task_ids)]
    newest = list(dict.fromkeys(reversed(named)))[:MAX_REFERENCES]
    return tuple(reversed(newest))


def content_of(message: UserMessage, context_id: str, references: Sequence[str] = ()) -> bytes:
    """Return the canonical bytes of the content, independent of the order of JSON members."""
    content = [context_id, describe_parts(message.parts), *references]
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def _read_message(message: pb.Message, parts: tuple[Part, ...], max_bytes: int) -> UserMessage:
    if message.role != pb.ROLE_USER:
        raise InvalidParamsError("message.role must be ROLE_USER: a client speaks for the user")
    if WITHHELD in message.metadata.fields:
        raise InvalidParamsError(f"message.metadata.{WITHHELD} is for this server to set; leave it out")
    parsed = UserMessage(
        message_id=check_id(message.message_id, "message.messageId"),
        parts=parts,
        metadata=read_struct(message.metadata, "message.metadata"),
        extensions=tuple(message.extensions),
    )
    size = len(parsed.model_dump_json().encode())
    if size > max_bytes:
        raise InvalidParamsError(
            f"the message has {size} bytes as JSON; this server takes {max_bytes}. Send less at once"
        )
    return parsed
