"""What a task recalls of a conversation: summaries of the older part, and the newest messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from everloop.activities.conversation.messages import with_lines_for_files
from everloop.stores.conversations import ConversationSummary
from everloop.stores.recent_messages import Room, newest_messages, safe_ends
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import AssistantMessage, TextPart, ToolMessage, UserMessage
from everloop.workflows.contract.names import name_calls
from everloop.workflows.contract.tasks import MemorySpec

MAX_BYTES = 100_000
"""Of what a task recalls, as JSON: it stands in the task's history."""

MAX_SUMMARY_BYTES = 40_000
"""Of the summaries in it, the newest ones."""

MAX_TOKENS = MAX_BYTES // 4
"""So many tokens are recalled at most, whatever the agent's memory says: there is no room for more."""


def token_budget(memory: MemorySpec) -> int:
    """Return of how many tokens messages are recalled, summaries not counted."""
    return min(memory.max_tokens, MAX_TOKENS)


def byte_budget(summaries: Sequence[ConversationSummary]) -> int:
    """Return how many bytes of messages are recalled for sure beside these summaries."""
    return MAX_BYTES - min(sum(byte_size(_message(summary)) for summary in summaries), MAX_SUMMARY_BYTES)


def byte_size(message: ConversationMessage) -> int:
    """Return how many bytes a message has, as JSON."""
    return len(message.model_dump_json().encode())


def recalled(
    summaries: Sequence[ConversationSummary], recent: Sequence[ConversationMessage], end: int
) -> list[ConversationMessage]:
    """Return the messages with which a transcript begins, as far as there is room: the newest ones.

    `recent` are the last messages of the conversation, up to position `end`. A summary is recalled unless it
    begins among those of them that are.
    """
    kept = list(recent)
    while True:
        earlier = _newest_that_fit([_message(s) for s in summaries if s.start < end - len(kept)])
        room = Room(len(kept), MAX_BYTES - sum(map(byte_size, earlier)), byte_size)
        fitting = newest_messages(kept, room) or newest_messages(with_lines_for_files(kept), room)
        if len(fitting) == len(kept):
            return _with_ids_of_place([*earlier, *fitting])
        kept = fitting  # fewer: their summary may be needed now


def _with_ids_of_place(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """Return the messages with the ids that calls get here: those of two earlier tasks may be the same."""
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


def _newest_that_fit(messages: Sequence[UserMessage]) -> list[UserMessage]:
    """Return the newest messages that there is room for among the summaries, oldest first."""
    room, kept = MAX_SUMMARY_BYTES, list[UserMessage]()
    for message in reversed(messages):
        room -= byte_size(message)
        if room < 0:
            break
        kept.insert(0, message)
    return kept


def _message(summary: ConversationSummary) -> UserMessage:
    """Return the summary as a message of the user, with an id that is the same whenever it is recalled."""
    return UserMessage(
        message_id=f"summary-{summary.level}-{summary.start}-{summary.end}",
        parts=(TextPart(text=f"[Summary of earlier conversation]\n{summary.text}"),),
    )


# What is summed up next of a conversation, by its strategy.

FAN_IN = 4
"""So many summaries of one level become one of the next level ("hierarchical")."""

MAX_BLOCK_CHARACTERS = 60_000
"""Of the messages, as JSON, that one call of the model sums up, unless one of them alone has more."""


@dataclass(frozen=True)
class SummaryStep:
    """A summary to write: of earlier summaries, and of messages after them, up to position `end`."""

    level: int
    start: int
    end: int
    earlier: tuple[ConversationSummary, ...] = ()
    messages: tuple[ConversationMessage, ...] = ()


def next_step(
    memory: MemorySpec,
    summaries: Sequence[ConversationSummary],
    start: int,
    messages: Sequence[ConversationMessage],
) -> SummaryStep | None:
    """Return what to sum up, None if nothing is left. `messages` are too old to be recalled, from `start` on.

    No summary covers them. Their range is cut into blocks so that no call of the model has to read too much.
    """
    if memory.strategy == "hierarchical" and (full := _full_level(summaries)):
        return SummaryStep(full[0].level + 1, full[0].start, full[-1].end, earlier=tuple(full))
    if not messages:
        return None
    if memory.strategy == "hierarchical":
        block = messages[: _block_end(messages, memory.max_messages)]
        return SummaryStep(0, start, start + len(block), messages=tuple(block))
    block = messages[: _block_end(messages, len(messages))]
    first = summaries[0].start if summaries else start
    return SummaryStep(0, first, start + len(block), tuple(summaries), tuple(block))


def _full_level(summaries: Sequence[ConversationSummary]) -> list[ConversationSummary]:
    """Return the oldest summaries in a row that are to become one; none if there are not enough."""
    for _, group in groupby(summaries, key=lambda summary: summary.level):
        if len(row := list(group)) >= FAN_IN:
            return row[:FAN_IN]
    return []


def _block_end(messages: Sequence[ConversationMessage], most: int) -> int:
    """Return how many messages one summary takes: those that fit, or else the fewest that belong together."""
    ends = [end for end in safe_ends(messages) if end]
    sizes = list(accumulate(len(message.model_dump_json()) for message in messages))
    fitting = [end for end in ends if end <= most and sizes[end - 1] <= MAX_BLOCK_CHARACTERS]
    return max(fitting, default=ends[0])
