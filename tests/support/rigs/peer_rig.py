"""One call of the tool that asks a peer, attempt by attempt, on a store in memory."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import JsonValue
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.task_artifacts import TaskArtifacts
from everloop.agents.hooks import ANYBODY
from everloop.agents.peer.peer_definition import Headers
from everloop.agents.peer.peer_plugin import peer
from everloop.agents.plugins import Plugin
from everloop.agents.question_exceptions import QuestionRequired
from everloop.agents.tool_context import ToolContext
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import Answer, Question, QuestionKind, answer_with
from everloop.workflows.contract.tasks import Identity, TaskRef
from tests.support.servers.peer_agent import RemoteAgent
from tests.support.stores import database, new_artifacts

TIME = timedelta(seconds=20)


@dataclass(frozen=True)
class Settings:
    """Settings of a peer."""

    headers: Headers | None = None
    token: str | None = None
    timeout: timedelta = TIME
    idempotent: bool = True


def ann(remote: RemoteAgent, settings: Settings = Settings()) -> Plugin:
    """Return the plugin with the tool `ann`, which asks the colleague."""
    return peer(
        remote.url,
        name="ann",
        headers=settings.headers,
        token=settings.token,
        timeout=settings.timeout,
        idempotent=settings.idempotent,
        hosts=remote.hosts,
    )


class PeerRig:
    """Runs the tool of a plugin. Each attempt finds the stored state of the one before."""

    def __init__(self, plugin: Plugin, *, auth: Identity = ANYBODY) -> None:
        (self.tool,) = plugin.tools
        self.kept: JsonValue = None
        self.is_wanted = True
        self.ever_kept: list[JsonValue] = []
        self.answers: list[Answer] = []
        self.secrets: dict[str, JsonValue] = {}
        self.progress: list[str] = []
        self.environment = ActivityEnvironment()
        self._has_kept = asyncio.Event()
        self._auth = auth
        self._task_id = str(uuid4())
        views = TaskViews(database())
        task = TaskRef(task_id=self._task_id, run_id="r", context_id="c", owner="o", agent_id="agent")
        published = ArtifactPublisher(new_artifacts(views), task, 3, views)
        self.artifacts = TaskArtifacts(published, "c", self._task_id)

    async def run(self, request: str, **arguments: JsonValue) -> str:
        """Run the next attempt, and return its answer."""
        self.environment = ActivityEnvironment()
        return await self.environment.run(self._attempt, {"request": request, **arguments})

    async def fail(self, request: str, **arguments: JsonValue) -> str:
        """Run the next attempt, and return its error as the model reads it."""
        with pytest.raises(Exception) as raised:  # noqa: PT011 -- each test looks at the text
            await self.run(request, **arguments)
        assert not isinstance(raised.value, QuestionRequired)
        assert raised.value.__cause__ is None
        return f"{type(raised.value).__name__}: {raised.value}"

    async def ask(self, request: str) -> Question:
        """Run the next attempt, and return its question."""
        with pytest.raises(QuestionRequired) as raised:
            await self.run(request)
        call = ToolCall(id="call", name=self.tool.name, arguments="{}")
        return raised.value.question(f"q{len(self.answers)}", call)

    def answer(self, question: Question, value: JsonValue) -> None:
        """Answer as the user; a secret is stored for tools alone."""
        if question.kind is QuestionKind.AUTH:
            self.secrets[question.secret_name] = value
            answered = Answer(
                question_id=question.id,
                kind=question.kind,
                purpose="input",
                tool=self.tool.name,
                secret_name=question.secret_name,
            )
        else:
            answered = answer_with(question, value, by="user")
        self.answers.append(answered)

    async def begin(self, remote: RemoteAgent, request: str = "wait 1") -> "asyncio.Task[str]":
        """Start the next attempt; return when the peer works, and the tool has stored its task."""
        attempt = asyncio.create_task(self.run(request))
        await remote.begun.wait()
        while not any(map(self._knows_all, self.ever_kept)):
            self._has_kept.clear()
            await self._has_kept.wait()
        return attempt

    async def cancel(self, attempt: "asyncio.Task[str]", why: ActivityCancellationDetails | None) -> None:
        """Cancel the running attempt, with an optional reason, and wait until it has ended."""
        self.environment.cancel(cancellation_details=why) if why else attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    async def lose(self, attempt: "asyncio.Task[str]") -> None:
        """End the running attempt as if its worker had died."""
        await self.cancel(attempt, ActivityCancellationDetails(not_found=True))

    async def written(self) -> dict[str, tuple[StoredArtifact, bytes]]:
        """Return the artifacts, by the part of their ids between the tool's name and the digest."""
        stored = await self.artifacts.list()
        names = [one.artifact_id.removeprefix(f"{self.tool.name}-").rpartition("-")[0] for one in stored]
        return {name: (one, await self._content(one)) for name, one in zip(names, stored, strict=True)}

    def _knows_all(self, kept: JsonValue) -> bool:
        """Return True if the peer has the request and all answers."""
        return isinstance(kept, dict) and kept["sent"] == len(self.answers)

    async def _content(self, artifact: StoredArtifact) -> bytes:
        if artifact.parts[0].url:
            return b""
        return b"".join([piece async for piece in self.artifacts.read(artifact.artifact_id)])

    async def _attempt(self, arguments: dict[str, JsonValue]) -> str:
        answer: str = await self.tool.function(call=self._context(), **arguments)
        return answer

    def _context(self) -> ToolContext:
        return ToolContext(
            task_id=self._task_id,
            context_id="c",
            owner="o",
            call_id="call",
            attempt=1,
            idempotency_key=f"{self._task_id}/call",
            progress=self._progress,
            artifacts=self.artifacts,
            auth=self._auth,
            answers=tuple(self.answers),
            secret=self._secret,
            kept=self.kept,
            keep=self._keep,
            is_wanted=lambda: self.is_wanted,
        )

    async def _progress(self, text: str) -> None:
        self.progress.append(text)

    async def _secret(self, name: str) -> JsonValue:
        return self.secrets.get(name)

    async def _keep(self, value: JsonValue) -> None:
        self.kept = value
        self.ever_kept.append(value)
        self._has_kept.set()
