"""The transcript cache: found and missing messages of a model call."""

from collections.abc import Sequence

import pytest
from redis.asyncio import Redis

from everloop.stores.keys import transcript_key
from everloop.stores.transcripts import OpenedTranscript, Transcripts
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    Usage,
)
from tests.stores.examples import new_id, said

REPLY = AssistantMessage(
    text="let me see",
    reasoning="hm",
    tool_calls=(ToolCall(id="c1", name="search", arguments='{"q": "é"}'),),
    model="m",
    finish_reason="tool_calls",
    usage=Usage(input_tokens=3, output_tokens=4),
)
SUMMARY = SummaryMessage(end=2, text="so far", usage=Usage(input_tokens=1, cost=0.5))
RESULT = ToolMessage(call_id="c1", name="search", content="found", outcome="error")
MESSAGES: tuple[TranscriptMessage, ...] = (said("m1"), REPLY, RESULT)


async def test_what_is_known_is_not_read(transcripts: Transcripts) -> None:
    """A reader with the first messages gets the later ones, and the reply after them."""
    task_id = new_id()
    await transcripts.put(task_id, "run", 0, [*MESSAGES, REPLY])
    for known in range(4):
        opened = await transcripts.open(task_id, "run", 3, cached=known)
        assert (opened.messages, opened.reply) == (MESSAGES[known:], REPLY)
    assert (await transcripts.open(task_id, "run", 6, cached=2)).messages is None


@pytest.mark.parametrize("kept", [(), (0,), (1, 2), (0, 2)])
async def test_a_transcript_with_a_hole_is_missing(transcripts: Transcripts, kept: Sequence[int]) -> None:
    """A transcript with a missing position is missing: no messages are returned."""
    task_id = new_id()
    for position in kept:
        await transcripts.put(task_id, "run", position, [MESSAGES[position]])

    assert (await transcripts.open(task_id, "run", 3)).messages is None


async def test_a_reply_that_an_earlier_attempt_left_is_found(transcripts: Transcripts) -> None:
    """`open` returns the reply at the length, and `put_reply` keeps the first one."""
    task_id = new_id()
    await transcripts.put(task_id, "run", 0, MESSAGES[:1])
    other = AssistantMessage(text="other")

    assert await transcripts.put_reply(task_id, "run", 1, REPLY) == REPLY
    assert await transcripts.put_reply(task_id, "run", 1, other) == REPLY

    assert await transcripts.open(task_id, "run", 1) == OpenedTranscript(MESSAGES[:1], REPLY)
    assert (await transcripts.open(task_id, "run", 2)).messages == MESSAGES[:2]


async def test_a_reply_and_a_summary_do_not_stand_for_each_other(transcripts: Transcripts) -> None:
    """A reply and a summary at the same position replace each other."""
    task_id = new_id()
    await transcripts.put(task_id, "run", 0, MESSAGES)

    await transcripts.put_reply(task_id, "run", 3, SUMMARY)
    assert await transcripts.put_reply(task_id, "run", 3, REPLY) == REPLY
    assert (await transcripts.open(task_id, "run", 3)).reply == REPLY


async def test_a_result_is_written_once(transcripts: Transcripts) -> None:
    """A result is written once: a late attempt replaces nothing, a new transmission does."""
    task_id = new_id()
    late = RESULT.model_copy(update={"content": "overtaken"})
    await transcripts.put(task_id, "run", 0, MESSAGES[:2])

    for result in (RESULT, late):
        await transcripts.add(task_id, "run", 2, result)
    assert (await transcripts.open(task_id, "run", 3)).messages == MESSAGES

    await transcripts.put(task_id, "run", 0, [*MESSAGES[:2], late])
    assert (await transcripts.open(task_id, "run", 3)).messages == (*MESSAGES[:2], late)


async def test_a_run_begins_with_what_the_run_before_had(transcripts: Transcripts) -> None:
    """A run starts with a copy of the former run's cache, which is independent from then on."""
    task_id = new_id()
    new = [said("m2")]
    await transcripts.put(task_id, "first", 0, MESSAGES)

    for _ in range(2):
        opened = await transcripts.open(task_id, "second", 4, new, previous_run="first")
        assert opened == OpenedTranscript((*MESSAGES, *new), None)
    await transcripts.put_reply(task_id, "second", 4, REPLY)

    assert (await transcripts.open(task_id, "second", 4, new, previous_run="first")).reply == REPLY
    assert (await transcripts.open(task_id, "first", 4)).messages is None
    assert (await transcripts.open(task_id, "first", 3)).messages == MESSAGES


@pytest.mark.parametrize("length", [1, 2, 3])
async def test_a_run_never_sees_replies_of_the_run_before(transcripts: Transcripts, length: int) -> None:
    """A run does not get the former run's messages at and after its new ones, such as its last replies."""
    task_id = new_id()
    await transcripts.put(task_id, "first", 0, (*MESSAGES, REPLY, RESULT))
    new = [said("other")]

    opened = await transcripts.open(task_id, "second", length, new, previous_run="first")

    assert opened == OpenedTranscript((*MESSAGES[: length - 1], *new), None)
    assert (await transcripts.open(task_id, "second", length + 1)).messages is None


async def test_what_a_run_has_of_its_own_is_not_copied_over(transcripts: Transcripts) -> None:
    """Only missing messages are copied: a tool's result may be stored before the new run's first call."""
    task_id = new_id()
    await transcripts.put(task_id, "first", 0, (*MESSAGES[:2], said("other")))
    await transcripts.put(task_id, "second", 2, [RESULT])

    for _ in range(2):
        opened = await transcripts.open(task_id, "second", 3, previous_run="first")
        assert opened == OpenedTranscript(MESSAGES, None)
    assert (await transcripts.open(task_id, "first", 3)).messages == (*MESSAGES[:2], said("other"))


async def test_sending_a_transcript_again_replaces_it(transcripts: Transcripts) -> None:
    """Chunks overwrite from their position on; one that starts at 0 clears the transcript."""
    task_id = new_id()
    many = [said(f"m{n}") for n in range(1_200)]
    await transcripts.put(task_id, "run", 0, MESSAGES)
    await transcripts.put_reply(task_id, "run", 3, REPLY)

    await transcripts.put(task_id, "run", 0, many[:2])
    assert await transcripts.open(task_id, "run", 3) == OpenedTranscript(None, None)
    await transcripts.put(task_id, "run", 2, many[2:])
    assert await transcripts.open(task_id, "run", 1_200) == OpenedTranscript(tuple(many), None)


async def test_long_messages_are_kept_compressed(redis: Redis) -> None:
    """Long messages are compressed, returned unchanged, also to the next run; defaults are left out."""
    task_id, long = new_id(), RESULT.model_copy(update={"content": "zażółć gęślą jaźń " * 50})
    transcripts = Transcripts(redis)
    await transcripts.put(task_id, "run", 0, [*MESSAGES, long])
    opened = await transcripts.open(task_id, "next", 4, previous_run="run")
    assert opened == OpenedTranscript((*MESSAGES, long), None)
    sizes = [await redis.hstrlen(transcript_key(task_id, "next"), str(position)) for position in (2, 3)]
    assert [size < 200 for size in sizes] == [True, True]


@pytest.mark.parametrize("entry", ['{"role": "oracle"}', "zebra", "sealed:k1:AAAA", "sealed:k9:AAAA"])
async def test_what_cannot_be_read_counts_as_missing(encrypted: Redis, entry: str) -> None:
    """Entries of a newer version, a missing key or broken encryption count as missing and are sent again.

    An unreadable reply is replaced.
    """
    redis = encrypted
    transcripts = Transcripts(redis)
    task_id = new_id()
    key = transcript_key(task_id, "run")
    await transcripts.put(task_id, "run", 0, MESSAGES[:2])
    for position in (1, 2):
        await redis.hset(key, str(position), entry)

    assert await transcripts.open(task_id, "run", 2) == OpenedTranscript(None, None)
    assert await transcripts.put_reply(task_id, "run", 2, REPLY) == REPLY
    assert (await transcripts.open(task_id, "run", 2)).reply == REPLY


async def test_the_newest_that_fit_are_shown(transcripts: Transcripts) -> None:
    """The newest messages within the limit are returned.

    Too large ones are left out, older ones may fit; without its beginning a transcript is lost.
    """
    task_id, large = new_id(), RESULT.model_copy(update={"content": "x" * 10_000})
    await transcripts.put(task_id, "run", 0, [*MESSAGES, large, SUMMARY])

    assert await transcripts.newest(task_id, "run", 9_000) == {**dict(enumerate(MESSAGES)), 4: SUMMARY}
    assert await transcripts.newest(task_id, "run", 1) == {}
    assert await transcripts.newest(task_id, "other", 9_000) is None
    await transcripts.put(task_id, "begun", 1, MESSAGES[1:])
    assert await transcripts.newest(task_id, "begun", 9_000) is None
