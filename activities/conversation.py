"""Remembers what was said in a context."""

from itertools import dropwhile
from json import dumps

from temporalio import activity

from stores.conversations import Conversations, SpokenMessage
from stores.transcripts import Transcripts
from workflows.contract.calls import LoadContextInput, LoadContextResult, SaveContextInput
from workflows.contract.messages import AssistantMessage, DataPart, FilePart, TextPart, UserMessage
from workflows.contract.names import context_key
from workflows.contract.ports import ContextPort
from workflows.contract.tasks import TaskRef

MAX_BYTES = 100_000
"""Of what a task recalls, as JSON: it stands in the task's history."""

MAX_CHARACTERS = 10_000
"""Of one message that is remembered: the rest is cut off."""


class RememberedConversation(ContextPort):
    """Reads and writes the conversation of a task's context, which is its owner's alone."""

    def __init__(self, conversations: Conversations, transcripts: Transcripts) -> None:
        self._conversations = conversations
        self._transcripts = transcripts

    @activity.defn
    async def load_context(self, call: LoadContextInput) -> LoadContextResult:
        recent = await self._conversations.get_recent(_context(call.task), call.max_messages)
        messages = _newest_that_fit(recent)
        if messages:
            await self._transcripts.put(call.task.task_id, call.task.run_id, 0, messages)
        return LoadContextResult(messages=tuple(messages))

    @activity.defn
    async def save_context(self, call: SaveContextInput) -> None:
        said = [short for message in call.messages if (short := _shortened(message))]
        await self._conversations.append(_context(call.task), call.task.task_id, said)


def _context(task: TaskRef) -> str:
    return context_key(task.owner, task.context_id)


def _newest_that_fit(messages: list[SpokenMessage]) -> list[SpokenMessage]:
    """Return the newest messages that there is room for; the first of them is the user's."""
    room, kept = MAX_BYTES, list[SpokenMessage]()
    for message in reversed(messages):
        room -= len(message.model_dump_json().encode())
        if room < 0:
            break
        kept.append(message)
    return list(dropwhile(lambda message: isinstance(message, AssistantMessage), reversed(kept)))


def _shortened(message: SpokenMessage) -> SpokenMessage | None:
    """Return what is remembered of a message: its words, and where its files are; None for no words."""
    if isinstance(message, AssistantMessage):
        return AssistantMessage(text=_cut(message.text)) if message.text else None
    texts = [_text(part) for part in message.parts if not isinstance(part, FilePart)]
    files = [part for part in message.parts if isinstance(part, FilePart)]
    words = [TextPart(text=_cut("\n\n".join(texts)))] if texts else []
    return UserMessage(message_id=message.message_id, parts=(*words, *files))


def _text(part: TextPart | DataPart) -> str:
    return part.text if isinstance(part, TextPart) else dumps(part.data)


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[{len(text) - MAX_CHARACTERS} more characters were cut off]"
