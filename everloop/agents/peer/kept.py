"""What an attempt at a peer's call leaves to the next one."""

import uuid

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from everloop.agents.peer.plugin import Peer
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.questions import Answer

_NAMESPACE = uuid.UUID("0d5c1c9b-6a55-5e06-8f0b-0b6c7f1d7a52")


class Kept(BaseModel):
    """How far a call has come with its peer.

    `task` is the id of the peer's task, empty before the peer has told it. `asked` is the question that was
    put to the user last, `sent` counts their answers that the peer has taken, and `answered` is the status
    of the peer that the last of them was for: until it has another one, it has only not got to it yet.
    `sending` is the same of the answer that is on its way, and may have been taken.
    """

    model_config = ConfigDict(frozen=True)

    task: str = ""
    context: str = ""
    asked: str = ""
    sent: int = 0
    answered: str = ""
    sending: str = ""

    def with_(self, **changes: str | int) -> "Kept":
        """Return the same with changes."""
        return self.model_copy(update=changes)


def read_kept(value: JsonValue) -> Kept:
    """Return what was kept; what another version of this module kept counts for nothing."""
    try:
        return Kept.model_validate(value or {})
    except ValidationError:
        return Kept()


def id_of(peer: Peer, call: ToolContext, answers: int = 0) -> str:
    """Return the id of the request, or of the answer that makes so many: the same for every attempt."""
    return str(uuid.uuid5(_NAMESPACE, f"{peer.card_url}\x1f{call.idempotency_key}\x1f{answers}"))


def answers_for(peer: Peer, call: ToolContext) -> list[Answer]:
    """Return the user's answers that are for the peer; a token goes with the requests instead."""
    return [answer for answer in call.answers if not peer.token or answer.secret_name != peer.token]
