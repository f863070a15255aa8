"""All stores in one Redis, and a task that writes a word into each of them."""

from dataclasses import dataclass

from redis.asyncio import Redis

from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Append, Create, NewPart
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.conversations.conversation_store import Conversations, ConversationSummary
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfig, PushConfigs
from everloop.stores.scripts import Lease
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.events import Thought
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskView
from tests.stores.examples import chunk, data, said, status, stream_of, submitted, told, view_of
from tests.support.stores import SingleRecords, kept_messages


@dataclass
class AllStores:
    """All stores of one client of Redis, with the words of one task."""

    redis: Redis
    task: TaskView
    word: str

    def __post_init__(self) -> None:
        self.views = TaskViews(self.redis)
        self.transcripts = Transcripts(self.redis)
        self.conversations = Conversations(self.redis)
        self.secrets = Secrets(self.redis)
        self.records = SingleRecords(self.redis)
        self.configs = PushConfigs(self.redis)
        self.artifacts = Artifacts(self.redis, RedisBlobs(self.redis))
        self.id = self.task.task_id

    def config(self) -> PushConfig:
        url = f"https://example.com/{self.word}"
        return PushConfig(
            id="c", task_id=self.id, owner="owner", context_id="x", url=url, token=self.word, public_url="p"
        )

    async def begin(self) -> None:
        """Write the first half into each store."""
        await self.views.create(self.task)
        await self.views.publish(
            self.id, "run", [chunk(f"{self.word} 1 "), status(1, message=told("a1", self.word))]
        )
        await self.transcripts.put(self.id, "run", 0, [said("m1", self.word)])
        await self.conversations.append("ctx" + self.id, "t1", [said("m1", self.word), said("m2", self.word)])
        await self.secrets.put(self.id, "m", self.word)
        await self.records.keep(Lease(self.id, "c1", "1"), "c1", self.word)
        await self.configs.put(self.config(), position="1-1")
        parts = (NewPart("text", self.word.encode()),)
        await self.artifacts.apply("ctx", self.id, Create(self.id, parts, name=self.word))

    async def go_on(self) -> None:
        """Write the second half."""
        await self.views.publish(
            self.id,
            "run",
            [
                chunk(f"{self.word} 2", index=1),
                chunk("", index=2, part=data(word=self.word), last=True),
                Thought(iteration=1, text=self.word),
                status(2, received=(said("m2", self.word),)),
            ],
        )
        child = submitted(child_task_id(self.id, "call"), owner=self.task.owner)
        await self.views.create(child)
        await self.views.publish(child.task_id, "child", [status(1, message=told("c1", self.word))])
        earlier = self.task.model_copy(update={"history": (said("m0", self.word), *self.task.history)})
        await self.views.restore(earlier)
        await self.transcripts.open(self.id, "next", 2, [said("m2", self.word)], previous_run="run")
        await self.conversations.compact("ctx" + self.id, ConversationSummary(start=0, end=1, text=self.word))
        await self.secrets.accept(self.id, "m", "name")
        outcome = ToolMessage(call_id="c1", name="n", content=self.word)
        await self.records.finish(Lease(self.id, "c1", "1"), outcome)
        await self.configs.advance(self.config(), start="1-1", end="2-2")
        await self.configs.put(self.config(), position="9-9")
        await self.artifacts.apply("ctx", self.id, Append(b" and more"))

    async def check(self) -> None:
        """Find both halves."""
        view, events = await view_of(self.views, self.id), await stream_of(self.views, self.id)
        (response,) = view.artifacts
        assert response.parts[0].model_dump()["text"] == f"{self.word} 1 {self.word} 2"
        assert response.parts[1] == data(word=self.word)
        assert response.name == "Response"
        assert [message.message_id for message in view.history] == ["m0", "m1", "a1", "m2"]
        assert self.word in str(view.history[0])
        assert str(events).count(self.word) == 7  # the last one is forwarded by the child
        opened = await self.transcripts.open(self.id, "next", 2)
        assert opened.messages == (said("m1", self.word), said("m2", self.word))
        kept = await kept_messages(self.conversations, "ctx" + self.id)
        assert kept == [said("m1", self.word), said("m2", self.word)]
        assert [s.text for s in await self.conversations.get_summaries("ctx" + self.id)] == [self.word]
        assert await self.secrets.get(self.id, "name") == self.word
        assert await self.records.kept(self.id, "c1") == self.word
        assert self.word in str(await self.records.outcome(self.id, "c1"))
        assert await self.configs.list_configs(self.id) == [self.config()]
        assert await self.configs.position(self.id, "c") == "2-2"  # its address is the same
        pieces = [piece async for piece in self.artifacts.read_part("ctx", self.id)]
        assert b"".join(pieces) == f"{self.word} and more".encode()
        assert (await self.artifacts.get_artifact("ctx", self.id)).name == self.word
