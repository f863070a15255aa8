"""What a task recalls of its context, and what it leaves to remember."""

from activities.conversation import MAX_CHARACTERS, RememberedConversation
from stores.memory_conversations import MemoryConversations
from stores.memory_transcripts import MemoryTranscripts
from workflows.contract.calls import LoadContextInput, SaveContextInput
from workflows.contract.messages import AssistantMessage, DataPart, FilePart, TextPart, UserMessage, text_of
from workflows.contract.tasks import TaskRef


def task(task_id: str, owner: str = "ann") -> TaskRef:
    return TaskRef(task_id=task_id, run_id="run", context_id="context", owner=owner, agent_id="a")


def said(text: str) -> UserMessage:
    return UserMessage(message_id=text[:20], parts=(TextPart(text=text),))


class Desk:
    """A conversation on memory stores."""

    def __init__(self) -> None:
        self.transcripts = MemoryTranscripts()
        self.port = RememberedConversation(MemoryConversations(), self.transcripts)

    async def save(self, task_id: str, *messages: UserMessage | AssistantMessage) -> None:
        await self.port.save_context(SaveContextInput(task=task(task_id), messages=messages))

    async def load(self, owner: str = "ann") -> tuple[UserMessage | AssistantMessage, ...]:
        return (await self.port.load_context(LoadContextInput(task=task("now", owner)))).messages


async def test_what_was_said_is_recalled_by_its_owner_only() -> None:
    """The transcript begins with it; another owner's context of the same name is another one."""
    desk = Desk()
    await desk.save("t1", said("2 + 2"), AssistantMessage(text="Four.", reasoning="hm"))

    recalled = await desk.load()

    assert recalled == (said("2 + 2"), AssistantMessage(text="Four."))
    opened = await desk.transcripts.open("now", "run", 2)
    assert opened.messages == recalled
    assert await desk.load("bob") == ()


async def test_long_messages_hide_nothing() -> None:
    """Of each message the beginning is remembered, so that one cannot push out all the others."""
    desk = Desk()
    await desk.save("t1", said("short"), AssistantMessage(text="ok"))
    await desk.save("t2", said("x" * 500_000), AssistantMessage(text="y" * 500_000))

    recalled = await desk.load()

    assert len(recalled) == 4
    longest = recalled[2]
    assert isinstance(longest, UserMessage)
    assert text_of(longest.parts).endswith(f"[{500_000 - MAX_CHARACTERS} more characters were cut off]")


async def test_what_is_recalled_begins_with_the_user() -> None:
    """Providers want it so, and an answer without its question says little."""
    desk = Desk()
    for n in range(15):
        await desk.save(f"t{n}", said(f"one {n}"), said(f"two {n}"), AssistantMessage(text="ok"))

    recalled = await desk.load()

    assert isinstance(recalled[0], UserMessage)
    assert len(recalled) <= 20


async def test_data_are_words_and_files_stay_where_they_are() -> None:
    """An empty answer is nothing to remember."""
    desk = Desk()
    file = FilePart(url="https://x.example/a")
    parts = (DataPart(data={"a": 1}), file)
    await desk.save("t1", UserMessage(message_id="m", parts=parts), AssistantMessage(text=""))

    assert await desk.load() == (UserMessage(message_id="m", parts=(TextPart(text='{"a": 1}'), file)),)
