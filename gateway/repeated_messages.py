"""Which messages are the same: a client that lost an answer sends its message again. Pure.

By messageId and content; by the Idempotency-Key of the request, if it has one, whatever the messageId; and
not at all for agents that do not deduplicate.
"""

import hashlib
import uuid

from a2a.utils.errors import InvalidParamsError

from agents.agent import Agent
from gateway.requests import SendRequest, content_of
from workflows.contract.messages import Message, UserMessage
from workflows.contract.names import (
    derive_task_id,
    has_mark,
    key_mark,
    message_identity,
    shown_message_id,
    unique_message_id,
)
from workflows.contract.questions import WITHHELD
from workflows.contract.tasks import TaskView

_OTHER_MESSAGE = "the header Idempotency-Key has come with another message; give each message its own"

IDEMPOTENCY_KEY = "idempotency-key"
"""The header that makes a message the same as any other one with it, whatever its messageId."""


def task_id_of(request: SendRequest, owner: str, agent: Agent) -> str:
    """Return the id of the task that a message starts: the same for the same message."""
    if request.key:
        return derive_task_id(owner, agent.id, unique_message_id("", request.key), b"")
    if not agent.deduplicate:
        return str(uuid.uuid4())
    content = content_of(request.message, request.context_id, request.references)
    return derive_task_id(owner, agent.id, request.message.message_id, content)


def named(request: SendRequest, *, deduplicate: bool) -> UserMessage:
    """Return the message with the id that it has for its task: the same for what counts as repeated."""
    message = request.message
    if not request.key and deduplicate:
        return message
    mark = key_mark(request.key) if request.key else uuid.uuid4().hex
    return message.model_copy(update={"message_id": unique_message_id(message.message_id, mark)})


def update_id(message: UserMessage) -> str:
    """Return what makes a message the same as another for its task."""
    return message_identity(message.message_id)


def digest_of(request: SendRequest) -> str:
    """Return what tells one content of a message from another."""
    content = content_of(request.message, request.context_id, request.references)
    return hashlib.sha256(content).hexdigest()


def check_digest(request: SendRequest, digest: str) -> None:
    """Pass unless the key of the request came with a message of another content before.

    Raises:
        InvalidParamsError: it did.
    """
    if request.key and digest and digest != digest_of(request):
        raise InvalidParamsError(_OTHER_MESSAGE)


def check_key(request: SendRequest, view: TaskView, message: UserMessage) -> None:
    """Pass unless the key of the request came with another message before.

    Raises:
        InvalidParamsError: it did.
    """
    is_elsewhere = request.key and request.context_id not in {"", view.context_id}
    if is_elsewhere or (request.key and any(_differs(known, message, request.key) for known in view.history)):
        raise InvalidParamsError(_OTHER_MESSAGE)


def find_repeated(view: TaskView, message: UserMessage, key: str) -> UserMessage | None:
    """Return this very message if the task has taken it in already: the client is repeating itself.

    What stands in place of a secret cannot be compared; nor is a secret passed on as something else because
    it comes again, whether the agent takes repeated messages or not.
    """
    said = (known for known in view.history if isinstance(known, UserMessage))
    return next((known for known in said if _is_same(known, message, key)), None)


def _is_same(known: UserMessage, message: UserMessage, key: str) -> bool:
    is_secret = bool(known.metadata.get(WITHHELD))
    if is_secret and not key:
        return shown_message_id(known.message_id) == shown_message_id(message.message_id)
    is_named_so = has_mark(known.message_id, key) if key else known.message_id == message.message_id
    return is_named_so and (is_secret or known.parts == message.parts)


def _differs(known: Message, message: UserMessage, key: str) -> bool:
    """Whether a message of the history came with the key and says something else."""
    if not isinstance(known, UserMessage) or not has_mark(known.message_id, key):
        return False
    return known.parts != message.parts and not known.metadata.get(WITHHELD)
