"""The messages that a task recalls of its context, and those that it remembers at its end."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError

from everloop.activities.conversation.recall import MAX_BYTES, MAX_SUMMARY_BYTES
from everloop.activities.model.models import Models
from everloop.models.catalogue import Provider
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.calls import SaveContextInput, SaveContextResult
from everloop.workflows.contract.failures import TRANSCRIPT_MISSING
from everloop.workflows.contract.messages import (
    AssistantMessage,
    FilePart,
    StoredPartRef,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    extend_digest,
    text_of,
)
from everloop.workflows.contract.names import name_calls
from tests.support.rigs.conversation_rig import SUMMARY, ConversationRig, said
from tests.support.rigs.model_rig import opened_models
from tests.support.stores import count_kept, kept_messages


@pytest_asyncio.fixture(loop_scope="session")
async def models() -> AsyncGenerator[Models]:
    """Provide models that are never asked, because no summary is due."""
    async with opened_models(Provider("openai", base_url="http://127.0.0.1:1")) as models:
        yield models


@pytest.fixture
def rig(models: Models, redis: Redis) -> ConversationRig:
    return ConversationRig(models, redis)


async def test_what_was_said_is_recalled_by_its_owner_only(rig: ConversationRig) -> None:
    """A transcript begins with the messages of its owner's context, and not with those of another owner."""
    await rig.save("t1", said("2 + 2"), AssistantMessage(text="Four.", reasoning="hm"))
    recalled = await rig.load()
    assert recalled == (said("2 + 2"), AssistantMessage(text="Four."))
    opened = await rig.transcripts.open("now", "run", 2)
    assert opened.messages == recalled
    assert await rig.load("bob") == ()


async def test_the_beginning_of_a_context_is_looked_at_no_oftener_than_needed(
    rig: ConversationRig, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recalling a context with one task takes two reads, with files or without, and a write."""
    asked = list[str]()
    execute = cast("Callable[..., Awaitable[Any]]", redis.execute_command)

    async def counted(*words: str, **options: Any) -> Any:  # noqa: ANN401 -- as Redis has it
        asked.append(words[0])
        return await execute(*words, **options)

    await rig.load("bob")  # Redis has the script from now on
    monkeypatch.setattr(redis, "execute_command", counted)
    assert await rig.load() == ()
    assert asked == ["LRANGE", "LRANGE", "EVALSHA"]


async def test_no_more_tokens_are_recalled_than_the_agent_wants(rig: ConversationRig) -> None:
    """At most the agent's number of tokens is recalled.

    The newest complete turns, four characters to a token, and four more for each message.
    """
    for n in range(5):
        await rig.save(f"t{n}", said(f"{n}" * 40), AssistantMessage(text="y" * 40))
    assert len(await rig.load(max_tokens=56)) == 4
    assert len(await rig.load(max_tokens=55)) == 2


async def test_what_is_recalled_has_a_bound(rig: ConversationRig) -> None:
    """The recalled messages have a fixed bound, because they are in the history."""
    for n in range(100):
        await rig.save(f"t{n}", said("é" * 3_000), AssistantMessage(text="é" * 3_000))
    for n in range(20):
        await rig.sum_up(n * 2, n * 2 + 2, f"{n:02}" + "é" * 3_000)
    recalled = await rig.load(max_messages=1000, max_tokens=1_000_000, strategy="summary")
    texts = [text_of(message.parts) for message in recalled if isinstance(message, UserMessage)]
    summaries = [text[34:36] for text in texts if text.startswith("[Summary")]
    assert MAX_BYTES * 0.8 < sum(len(m.model_dump_json().encode()) for m in recalled) <= MAX_BYTES
    assert summaries == [f"{n:02}" for n in range(20 - MAX_SUMMARY_BYTES // 6_200, 20)]
    assert recalled[len(summaries)] == said("é" * 3_000)


async def test_summaries_stand_before_the_messages(rig: ConversationRig) -> None:
    """Summaries come before the messages, as user messages with stable ids; a window has none."""
    for n in range(4):
        await rig.save(f"t{n}", said(f"{n}"), AssistantMessage(text="ok"))
    await rig.sum_up(0, 2, "They said 0.")
    await rig.sum_up(2, 6, "They said 1 and 2.")
    recalled = await rig.load(strategy="summary", max_messages=4)
    heading = "[Summary of earlier conversation]\n"
    assert recalled == (
        UserMessage(message_id="summary-0-0-2", parts=(TextPart(text=f"{heading}They said 0."),)),
        UserMessage(message_id="summary-0-2-6", parts=(TextPart(text=f"{heading}They said 1 and 2."),)),
        *(said("2"), AssistantMessage(text="ok"), said("3"), AssistantMessage(text="ok")),
    )
    assert (await rig.transcripts.open("now", "run", 6)).messages == recalled
    assert await rig.load(strategy="window", max_messages=4) == recalled[2:]


async def test_recalled_calls_have_the_ids_of_their_new_places(rig: ConversationRig) -> None:
    """Recalled calls get ids by their new position.

    Providers refuse the same ids of two tasks in one request.
    """
    asked = AssistantMessage(tool_calls=name_calls([ToolCall(id="", name="find", arguments="{}")], 1))
    found = ToolMessage(call_id=asked.tool_calls[0].id, name="find", content="found")
    for task in ("one", "other"):
        await rig.save(task, said("Find."), asked, found, ANSWER)
    recalled = await rig.load()
    assert [call.id for m in recalled if isinstance(m, AssistantMessage) for call in m.tool_calls] == [
        "r00001c01",
        "r00005c01",
    ]
    assert [m.call_id for m in recalled if isinstance(m, ToolMessage)] == ["r00001c01", "r00005c01"]


CALL = ToolCall(id="c1", name="find", arguments="{}")
RESULT = ToolMessage(call_id="c1", name="find", content="found")
RECALLED = (said("before"), AssistantMessage(text="yes"))
WORK = (
    said("now"),
    AssistantMessage(
        tool_calls=(CALL.model_copy(update={"opaque": "{}"}),), reasoning="hm", opaque="{}", source="p/m"
    ),
    RESULT,
    AssistantMessage(text="Done."),
)


async def test_what_a_task_added_to_its_transcript_is_remembered(rig: ConversationRig) -> None:
    """A task remembers its own messages, without recalled ones and opaque fields of providers.

    A retry adds nothing.
    """
    for _ in range(2):
        await rig.save_cached([*RECALLED, *WORK], first=2)
    kept = await kept_messages(rig.conversations, rig.context)
    assert kept == [WORK[0], AssistantMessage(tool_calls=(CALL,)), RESULT, WORK[3]]


IMAGES = tuple(
    FilePart(filename=f"f{n}", media_type="image/png", size=9, stored=StoredPartRef(artifact_id=f"a{n}"))
    for n in range(8)
)
ANSWER = AssistantMessage(text="Eight cats.")


async def test_too_many_files_are_recalled_as_lines(rig: ConversationRig) -> None:
    """Files beyond the bound are recalled as lines, and the words and the answer in full."""
    await rig.save("t1", said("before"), AssistantMessage(text="yes"))
    await rig.save("t2", UserMessage(message_id="m", parts=(TextPart(text="What is it?"), *IMAGES)), ANSWER)
    recalled = await rig.load()
    lines = [TextPart(text=f"[file f{n}, image/png, 9 bytes; artifact a{n}]") for n in range(8)]
    question = UserMessage(message_id="m", parts=(TextPart(text="What is it?"), *lines))
    assert recalled == (said("before"), AssistantMessage(text="yes"), question, ANSWER)


@pytest.mark.parametrize("digest", ["", extend_digest("", WORK[:3])], ids=["lost in part", "differs"])
async def test_a_transcript_that_is_not_the_history_is_asked_for(rig: ConversationRig, digest: str) -> None:
    """A transcript that differs from the history is requested again; nothing is remembered before that."""
    await rig.transcripts.put("now", "run", 0, WORK if digest else WORK[:3])
    call = SaveContextInput(task=rig.task("now"), length=4, digest=digest, memory=SUMMARY)
    with pytest.raises(ApplicationError) as caught:
        await rig.port.save_context(call)
    assert (caught.value.type, caught.value.non_retryable) == (TRANSCRIPT_MISSING, True)
    assert await count_kept(rig.conversations, rig.context) == 0
    await rig.save_cached(WORK)
    assert await count_kept(rig.conversations, rig.context) == 4


LONG: Sequence[tuple[Memory, bool]] = [
    (SUMMARY, True),
    (replace(SUMMARY, strategy="window"), False),
    (replace(SUMMARY, auto_compact=False), False),
    (replace(SUMMARY, max_messages=5), False),
    (replace(SUMMARY, max_messages=5, max_tokens=20), True),
]


@pytest.mark.parametrize(("memory", "is_long"), LONG)
async def test_a_conversation_is_long_if_it_is_more_than_a_task_recalls(
    rig: ConversationRig, memory: Memory, *, is_long: bool
) -> None:
    """A conversation of more than a task recalls is due for a summary if the agent has summaries.

    A retry says the same.
    """
    await rig.save("t1", said("a"), AssistantMessage(text="b"), AssistantMessage(text="c"))
    for _ in range(2):
        assert await rig.save_cached((said("d"), AssistantMessage(text="e")), memory=memory) == (
            SaveContextResult(is_long=is_long)
        )


async def test_what_is_summed_up_already_does_not_count(rig: ConversationRig) -> None:
    """Only messages after the last summary count."""
    await rig.save("t1", said("a"), AssistantMessage(text="b"), AssistantMessage(text="c"))
    await rig.sum_up(0, 1, "They said a.")
    assert await rig.save_cached((said("d"), AssistantMessage(text="e"))) == SaveContextResult(is_long=False)
