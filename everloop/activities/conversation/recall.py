"""Context that a task recalls from a conversation: summaries of the older part, and the newest messages."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from json import dumps

from everloop.activities.model.model_files import describe
from everloop.stores.conversations.conversation_store import ConversationSummary
from everloop.stores.conversations.memory_selection import PromptBudget, newest_messages
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.calls import CREATE_TASK, ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    FilePart,
    SpokenMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
    part_text,
)
from everloop.workflows.contract.names import name_calls
from everloop.workflows.contract.parts import cut_for_model

MAX_BYTES = 100_000
"""Limit of the recalled context, as JSON: it is stored in the task's history."""

MAX_SUMMARY_BYTES = 40_000
"""Limit of the summaries in it. The newest ones are used."""

MAX_TOKENS = MAX_BYTES // 4
"""Limit of an agent's token budget: more would not fit into `MAX_BYTES`."""


def token_budget(memory: Memory) -> int:
    """Return the token budget of recalled messages. Summaries are not counted."""
    return min(memory.max_tokens, MAX_TOKENS)


def byte_budget(summaries: Sequence[ConversationSummary]) -> int:
    """Return the bytes that are left for messages beside these summaries."""
    return MAX_BYTES - min(sum(byte_size(_message(summary)) for summary in summaries), MAX_SUMMARY_BYTES)


def byte_size(message: ConversationMessage) -> int:
    """Return the size of a message as JSON, in bytes."""
    return len(message.model_dump_json().encode())


def recalled(
    summaries: Sequence[ConversationSummary], recent: Sequence[ConversationMessage], end: int
) -> list[ConversationMessage]:
    """Return the initial messages of a transcript: the newest ones that fit.

    `recent` are the last messages of the conversation, up to position `end`, which is only used with
    summaries. A summary is recalled unless it begins within the recalled messages.
    """
    shown = list(recent)
    while True:
        earlier = [_message(summary) for summary in summaries if summary.start < end - len(shown)]
        earlier = newest_messages(earlier, PromptBudget(len(earlier), MAX_SUMMARY_BYTES, byte_size))
        budget = PromptBudget(len(shown), MAX_BYTES - sum(map(byte_size, earlier)), byte_size)
        fitting = newest_messages(shown, budget) or newest_messages(with_lines_for_files(shown), budget)
        if len(fitting) == len(shown):
            return _with_ids_of_place([*earlier, *fitting])
        shown = fitting  # fewer messages: they may need their summary now


def _with_ids_of_place(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """Return the messages with call ids by position: two earlier tasks may have used the same ids."""
    placed = list[ConversationMessage]()
    ids = dict[str, str]()
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            calls = name_calls(message.tool_calls, position)
            ids = {old.id: new.id for old, new in zip(message.tool_calls, calls, strict=True)}
            placed.append(message.model_copy(update={"tool_calls": calls}))
        elif isinstance(message, ToolMessage):
            placed.append(message.model_copy(update={"call_id": ids.get(message.call_id, message.call_id)}))
        else:
            placed.append(message)
    return placed


def _message(summary: ConversationSummary) -> UserMessage:
    """Return the summary as a message of the user. Its id is the same for each recall."""
    return UserMessage(
        message_id=f"summary-{summary.level}-{summary.start}-{summary.end}",
        parts=(TextPart(text=f"[Summary of earlier conversation]\n{summary.text}"),),
    )


# The part of a task's transcript that is remembered.

MAX_CHARACTERS = 10_000
"""Limit of a remembered message. The rest is cut off."""

MAX_RESULT_CHARACTERS = 4_000
"""Limit of the remembered result of a tool."""

MAX_ARGUMENT_CHARACTERS = 2_000
"""Limit of the remembered arguments of a tool call."""

MAX_FILES = 10
"""Limit of the files of a message. Of others only a line in the text is remembered."""

MAX_URL_CHARACTERS = 1_000
"""Limit of the URL of a remembered file. With a longer one only a line is remembered."""


def remembered(transcript: Sequence[TranscriptMessage]) -> list[ConversationMessage]:
    """Return the part to remember: text, tool calls with their results, and the addresses of files.

    Left out are summaries and lists of tools, refused replies, messages for the model alone, calls without a
    result, the model's reasoning, and the request that became a task.
    """
    spoken = list(_without_refusals(transcript))
    messages = list[ConversationMessage]()
    answered = frozenset[str]()
    for position, message in enumerate(spoken):
        if isinstance(message, AssistantMessage):
            answered = _answered(message, spoken[position + 1 :])
            messages += _reply(message, answered)
        elif isinstance(message, UserMessage):
            messages.append(_user_message(message))
        elif message.call_id in answered:
            answered -= {message.call_id}  # a second result has no call
            content = cut_for_model(message.content, MAX_RESULT_CHARACTERS)
            # Later tasks do not continue reading in it, nor read its files again.
            beginning = {"content": content, "whole": 0, "kept": "", "files": ()}
            messages.append(message.model_copy(update=beginning))
    return messages


def _without_refusals(transcript: Iterable[TranscriptMessage]) -> Iterable[SpokenMessage]:
    """Return the messages without refused replies and messages for the model alone."""
    for message in transcript:
        is_notice = isinstance(message, UserMessage) and not message.message_id
        is_refused = isinstance(message, AssistantMessage) and message.refused
        if isinstance(message, SpokenMessage) and not is_notice and not is_refused:
            yield message


def _answered(reply: AssistantMessage, later: Iterable[SpokenMessage]) -> frozenset[str]:
    """Return the ids of the calls with a result, except for the one that asked for a task."""
    rest = takewhile(lambda message: not isinstance(message, AssistantMessage), later)
    results = {message.call_id for message in rest if isinstance(message, ToolMessage)}
    return frozenset(call.id for call in reply.tool_calls if call.name != CREATE_TASK) & results


def _reply(reply: AssistantMessage, answered: frozenset[str]) -> list[AssistantMessage]:
    text = cut_for_model(reply.text or reply.closing, MAX_CHARACTERS)
    calls = tuple(_call(call) for call in reply.tool_calls if call.id in answered)
    return [AssistantMessage(text=text, tool_calls=calls)] if text or calls else []


def _call(call: ToolCall) -> ToolCall:
    if call.opaque:  # only for the model that returned it, which is not recorded
        call = call.model_copy(update={"opaque": ""})
    if len(call.arguments) <= MAX_ARGUMENT_CHARACTERS:
        return call
    # Providers refuse arguments that are not JSON.
    return call.model_copy(
        update={"arguments": dumps({"cut": cut_for_model(call.arguments, MAX_ARGUMENT_CHARACTERS)})}
    )


def with_lines_for_files(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """Return the messages with a line instead of each file, which is shorter."""
    return [_with_lines(message) if isinstance(message, UserMessage) else message for message in messages]


def _with_lines(message: UserMessage) -> UserMessage:
    parts = (TextPart(text=describe(part)) if isinstance(part, FilePart) else part for part in message.parts)
    return message.model_copy(update={"parts": tuple(parts)})


def _user_message(message: UserMessage) -> UserMessage:
    files = (part for part in message.parts if isinstance(part, FilePart))
    # The address of a stored file is enough.
    linked = [file for file in files if not file.content and len(file.url) <= MAX_URL_CHARACTERS][:MAX_FILES]
    texts = [part_text(part, _line_of) for part in message.parts if not any(part is file for file in linked)]
    bare = [part.model_copy(update={"metadata": {}}) for part in linked]
    words = [TextPart(text=cut_for_model("\n\n".join(texts), MAX_CHARACTERS))] if texts else []
    return UserMessage(message_id=message.message_id, parts=(*words, *bare))


def _line_of(file: FilePart) -> str:
    return describe(file.model_copy(update={"url": cut_for_model(file.url, MAX_URL_CHARACTERS)}))
