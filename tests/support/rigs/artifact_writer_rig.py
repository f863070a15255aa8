"""An agent whose model writes artifacts: its calls in pieces, and what becomes of the artifact `doc`."""

import json

import pytest
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everloop.agents.agent import Agent
from everloop.agents.artifact_tools import artifacts
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.workflows.contract.events import ArtifactChunk, TaskEvent
from everloop.workflows.contract.messages import Part, TextPart, text_of
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import Artifact
from tests.support.rigs.model_rig import ModelBench
from tests.support.servers.scripted_openai import CallFragment, Step

WRITER = Agent(id="agent", name="Writer", description="", plugins=[artifacts()])
BASE = "Once upon a time. "


def arguments(text: str, *, append: bool = False, artifact_id: str = "doc") -> str:
    """Return the arguments of a call that writes a text."""
    parts: list[JsonValue] = [{"media_type": "", "text": text}]
    artifact: JsonValue = {"artifact_id": artifact_id, "name": "Doc", "parts": parts}
    return json.dumps({"append": append, "last_chunk": False, "artifact": artifact})


def fragments(text: str, *stops: Step, append: bool = False) -> list[Step]:
    """Return a call in three pieces, with stops behind the first half of its text."""
    written = arguments(text, append=append)
    head, half = written.index("text") + 3, written.index(text[0], written.index("text")) + len(text) // 2
    first = CallFragment(0, "a", "artifact_update", written[:head])
    more = (CallFragment(0, None, None, piece) for piece in (written[head:half], written[half:]))
    return [first, next(more), *stops, next(more)]


def is_chunk(event: TaskEvent) -> bool:
    """Whether an event carries a piece of an artifact."""
    return isinstance(event, ArtifactChunk)


async def shown(bench: ModelBench, artifact_id: str = "doc") -> Artifact | None:
    """Return an artifact as a client sees it."""
    found = await bench.views.artifact(bench.task.task_id, artifact_id)
    return found.artifact if found else None


async def text(bench: ModelBench, artifact_id: str = "doc") -> str | None:
    """Return the text of an artifact."""
    artifact = await shown(bench, artifact_id)
    return text_of(artifact.parts) if artifact else None


async def shown_parts(bench: ModelBench) -> tuple[Part, ...]:
    """Return the parts of the artifact."""
    artifact = await shown(bench)
    return artifact.parts if artifact else ()


async def begin_doc(bench: ModelBench) -> None:
    """Let an earlier iteration have begun an artifact, which is stored and shown."""
    context = context_key(bench.task.owner, bench.task.context_id)
    part = NewPart("text", BASE.encode())
    await bench.artifacts.apply(context, "doc", Create(bench.task.task_id, (part,), "Doc"))
    chunk = ArtifactChunk(
        artifact_id="doc",
        name="Doc",
        mode="replace",
        position=0,
        attempt=1,
        index=0,
        part=TextPart(text=BASE),
    )
    await bench.views.publish(bench.task.task_id, bench.task.run_id, [chunk])


async def fail(bench: ModelBench, *, attempt: int = 1, failures: int = 0) -> ApplicationError:
    """Run an attempt that fails."""
    with pytest.raises(ApplicationError) as caught:
        await bench.run(attempt=attempt, failures=failures)
    return caught.value
