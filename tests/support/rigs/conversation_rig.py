"""What the tests of conversation summaries share: a conversation, and a model that sums it up."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

from openai import AsyncOpenAI
from temporalio.testing import ActivityEnvironment

from everloop.activities.conversation.memory import RememberedConversation
from everloop.activities.model.provider import ModelProvider
from everloop.stores.conversations import Conversations
from everloop.workflows.contract.calls import (
    CompactConversationInput,
    ConversationMessage,
    LoadContextInput,
    SaveContextInput,
)
from everloop.workflows.contract.messages import AssistantMessage, TextPart, UserMessage, text_of
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import Memory, TaskRef
from tests.support.memory.conversations import MemoryConversations
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.memory.transcripts import MemoryTranscripts
from tests.support.servers.scripted_openai import ScriptedOpenAI

SUMMARY = Memory(strategy="summary", max_messages=4)
HIERARCHICAL = Memory(strategy="hierarchical", max_messages=4)


def said(text: str) -> UserMessage:
    return UserMessage(message_id=text[:20], parts=(TextPart(text=text),))


def spoken(message: ConversationMessage) -> str:
    """Return the words of a message."""
    if isinstance(message, UserMessage):
        return text_of(message.parts)
    return message.text if isinstance(message, AssistantMessage) else message.content


class ConversationRig:
    """A conversation whose tasks have one question and one answer each, and a model that sums it up."""

    def __init__(self, client: AsyncOpenAI, conversations: Conversations, model: str | None) -> None:
        self.conversations = conversations
        self.port = RememberedConversation(
            conversations, MemoryTranscripts(), ModelProvider(client, model), MemoryToolRecords()
        )
        self.task = TaskRef(task_id="t", run_id="run", context_id=uuid4().hex, owner="ann", agent_id="helper")
        self.context = context_key("ann", self.task.context_id)

    async def talk(self, first: int, count: int, memory: Memory = SUMMARY) -> list[bool]:
        """Let tasks end; return after which of them the conversation was long."""
        return [
            await self.save(
                f"t{n}", said(f"question {n}."), AssistantMessage(text=f"answer {n}."), memory=memory
            )
            for n in range(first, first + count)
        ]

    async def save(self, task_id: str, *messages: ConversationMessage, memory: Memory = SUMMARY) -> bool:
        task = self.task.model_copy(update={"task_id": task_id})
        call = SaveContextInput(task=task, messages=messages, memory=memory)
        return bool((result := await self.port.save_context(call)) and result.is_long)

    async def compact(
        self,
        memory: Memory = SUMMARY,
        *,
        model: str | None = None,
        environment: ActivityEnvironment | None = None,
    ) -> None:
        call = CompactConversationInput(task=self.task, memory=memory, model=model)
        await (environment or ActivityEnvironment()).run(self.port.compact_conversation, call)

    async def summaries(self) -> list[tuple[int, int, int, str]]:
        found = await self.conversations.get_summaries(self.context)
        return [(summary.level, summary.start, summary.end, summary.text) for summary in found]

    async def recalled(self, memory: Memory = SUMMARY) -> list[str]:
        call = LoadContextInput(task=self.task, memory=memory)
        loaded = await ActivityEnvironment().run(self.port.load_context, call)
        return [spoken(message) for message in loaded.messages]


@asynccontextmanager
async def conversation_rig(
    provider: ScriptedOpenAI, conversations: Conversations | None = None, model: str | None = "test-model"
) -> AsyncGenerator[ConversationRig]:
    async with AsyncOpenAI(api_key="k", base_url=provider.base_url, max_retries=0) as client:
        yield ConversationRig(client, conversations or MemoryConversations(), model)
