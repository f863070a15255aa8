"""Which messages are the same: a client that lost an answer sends its message again. Pure.

By messageId and content; by the Idempotency-Key of the request, if it has one, whatever the messageId; and
not at all for agents that do not deduplicate.
"""

import hashlib
import uuid
from collections.abc import Iterable

from a2a.utils.errors import InvalidParamsError

from everloop.agents.agent import Agent
from everloop.gateway.errors import MessageChangedError
from everloop.gateway.requests.messages import SendRequest, content_of
from everloop.workflows.contract.messages import Message, UserMessage
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

_OTHER_MESSAGE = "the header Idempotency-Key has come with another message; give each message its own"

IDEMPOTENCY_KEY = "idempotency-key"
"""The header that makes a message the same as any other one with it, whatever its messageId."""


def task_id_of(request: SendRequest, owner: str, agent: Agent) -> str:
    """Return the id of the task that a message starts: the same for the same message."""
    if request.key:
        return derive_task_id(owner, agent.id, unique_message_id("", request.key), b"")
    if not agent.deduplicate:
        return agent_task_id(agent.id, str(uuid.uuid4()))
    content = content_of(request.message, request.context_id, request.references)
    return derive_task_id(owner, agent.id, request.message.message_id, content)


def named(request: SendRequest, *, deduplicate: bool) -> UserMessage:
    """Return the message with the id that it has for its task: the same for what counts as repeated."""
    message = request.message
    if not request.key and deduplicate:
        return message
    mark = key_mark(request.key) if request.key else uuid.uuid4().hex
    return message.model_copy(update={"message_id": unique_message_id(message.message_id, mark)})


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


def check_repeated(request: SendRequest, view: TaskView, message: UserMessage) -> None:
    """Pass unless another message came under the same id, or with the same key, before.

    Raises:
        InvalidParamsError, MessageChangedError: one did.
    """
    is_elsewhere = request.key and request.context_id not in {"", view.context_id}
    if is_elsewhere or any(_differs(known, message) for known in view.history):
        raise changed(request)


def may_be_repeated(message_ids: Iterable[str], message: UserMessage, key: str) -> str | None:
    """Return which of these ids a message may have come under before; None if it is a new one."""
    shown, identity = view_message_id(message.message_id), message_identity(message.message_id)
    return next(
        (
            known
            for known in message_ids
            if (key and has_mark(known, key))
            or view_message_id(known) == shown
            or message_identity(known) == identity
        ),
        None,
    )


def changed(request: SendRequest) -> InvalidParamsError | MessageChangedError:
    """Return what to say to who sent another message as one that has come before."""
    if request.key:
        return InvalidParamsError(_OTHER_MESSAGE)
    return MessageChangedError(request.message.message_id)


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
        return view_message_id(known.message_id) == view_message_id(message.message_id)
    is_named_so = has_mark(known.message_id, key) if key else known.message_id == message.message_id
    return is_named_so and (is_secret or known.parts == message.parts)


def _differs(known: Message, message: UserMessage) -> bool:
    """Whether a message of the history counts as the same and says something else."""
    is_same = message_identity(known.message_id) == message_identity(message.message_id)
    if not (isinstance(known, UserMessage) and is_same):
        return False
    return known.parts != message.parts and not known.metadata.get(WITHHELD)
