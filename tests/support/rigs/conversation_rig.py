"""A rig for conversations: the stores, recalling tasks, and a model for summaries."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from redis.asyncio import Redis
from temporalio.testing import ActivityEnvironment

from everloop.activities.conversation.conversation_memory import RememberedConversation
from everloop.activities.model.models import Models
from everloop.stores.conversations.conversation_store import Conversations, ConversationSummary
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.calls import (
    CompactConversationInput,
    ConversationMessage,
    LoadContextInput,
    SaveContextInput,
    SaveContextResult,
)
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    TranscriptMessage,
    UserMessage,
    text_of,
)
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskRef
from tests.support.rigs.model_rig import opened_models, provider_at
from tests.support.servers.scripted_openai import Script, ScriptedOpenAI

SUMMARY = Memory(strategy="summary", max_messages=4)


def said(text: str) -> UserMessage:
    return UserMessage(message_id=text[:20], parts=(TextPart(text=text),))


def spoken(message: ConversationMessage) -> str:
    """Return the words of a message."""
    if isinstance(message, UserMessage):
        return text_of(message.parts)
    return message.text if isinstance(message, AssistantMessage) else message.content


class ConversationRig:
    """A conversation and transcripts in stores, tasks that recall it, and a model that summarizes it."""

    def __init__(self, models: Models, redis: Redis) -> None:
        self.conversations = Conversations(redis)
        self.transcripts = Transcripts(redis)
        self.port = RememberedConversation(self.conversations, self.transcripts, models, ToolRecords(redis))
        self.context_id = uuid4().hex
        self.context = context_key("ann", self.context_id)

    def task(self, task_id: str, owner: str = "ann") -> TaskRef:
        return TaskRef(task_id=task_id, run_id="run", context_id=self.context_id, owner=owner, agent_id="a")

    async def talk(self, first: int, count: int, memory: Memory = SUMMARY) -> list[bool]:
        """End this number of tasks; return after which of them the conversation was long."""
        return [
            await self.save(
                f"t{n}", said(f"question {n}."), AssistantMessage(text=f"answer {n}."), memory=memory
            )
            for n in range(first, first + count)
        ]

    async def save(self, task_id: str, *messages: ConversationMessage, memory: Memory = SUMMARY) -> bool:
        """Save a task's messages; return True if the conversation is long then."""
        await self.transcripts.put(task_id, "run", 0, messages)
        call = SaveContextInput(task=self.task(task_id), length=len(messages), memory=memory)
        return bool((result := await self.port.save_context(call)) and result.is_long)

    async def save_cached(
        self, transcript: Sequence[TranscriptMessage], *, first: int = 0, memory: Memory = SUMMARY
    ) -> SaveContextResult | None:
        """Save the cached transcript of the task `now`."""
        await self.transcripts.put("now", "run", 0, transcript)
        call = SaveContextInput(task=self.task("now"), first=first, length=len(transcript), memory=memory)
        return await self.port.save_context(call)

    async def sum_up(self, start: int, end: int, text: str) -> None:
        await self.conversations.compact(self.context, ConversationSummary(start=start, end=end, text=text))

    async def compact(
        self,
        memory: Memory = SUMMARY,
        *,
        model: str | None = None,
        environment: ActivityEnvironment | None = None,
    ) -> None:
        call = CompactConversationInput(task=self.task("t"), memory=memory, model=model)
        await (environment or ActivityEnvironment()).run(self.port.compact_conversation, call)

    async def summaries(self) -> list[tuple[int, int, int, str]]:
        found = await self.conversations.get_summaries(self.context)
        return [(summary.level, summary.start, summary.end, summary.text) for summary in found]

    async def load(self, owner: str = "ann", **memory: object) -> tuple[ConversationMessage, ...]:
        """Return the messages that the task `now` recalls."""
        return await self._load(Memory(**memory), owner)  # pyright: ignore[reportArgumentType] -- settings of any kind

    async def recalled(self, memory: Memory = SUMMARY) -> list[str]:
        return [spoken(message) for message in await self._load(memory)]

    async def _load(self, memory: Memory, owner: str = "ann") -> tuple[ConversationMessage, ...]:
        call = LoadContextInput(task=self.task("now", owner), memory=memory)
        return (await ActivityEnvironment().run(self.port.load_context, call)).messages


@asynccontextmanager
async def conversation_rig(
    redis: Redis, script: Script = ()
) -> AsyncGenerator[tuple[ConversationRig, ScriptedOpenAI]]:
    """Yield a rig, and the provider of the model that writes its summaries."""
    async with ScriptedOpenAI(script) as provider, opened_models(provider_at(provider)) as models:
        yield ConversationRig(models, redis), provider
