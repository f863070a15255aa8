"""An agent whose model writes artifacts: its calls in pieces, and the resulting artifact `doc`."""

import json

from pydantic import JsonValue

from everloop.agents.agent import Agent
from everloop.agents.artifact_tools import artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.artifacts.publisher import ArtifactPublisher
from tests.support.rigs.model_rig import ModelRig, is_chunk
from tests.support.servers.scripted_openai import CallFragment, Step

WRITER = Agent(id="agent", name="Writer", description="", plugins=[artifacts()])
BASE = "Once upon a time. "


def arguments(text: str, *, append: bool = False, artifact_id: str = "doc") -> str:
    """Return the arguments of a call that writes a text."""
    parts: list[JsonValue] = [{"media_type": "", "text": text}]
    artifact: JsonValue = {"artifact_id": artifact_id, "name": "Doc", "parts": parts}
    return json.dumps({"append": append, "last_chunk": False, "artifact": artifact})


def fragments(text: str, *stops: Step, append: bool = False) -> list[Step]:
    """Return a call in three pieces, with pauses after the first half of its text."""
    written = arguments(text, append=append)
    head, half = written.index("text") + 3, written.index(text[0], written.index("text")) + len(text) // 2
    first = CallFragment(0, "a", "artifact_update", written[:head])
    more = (CallFragment(0, None, None, piece) for piece in (written[head:half], written[half:]))
    return [first, next(more), *stops, next(more)]


async def begin_doc(rig: ModelRig) -> None:
    """Store and show an artifact of an earlier iteration."""
    part = NewPart("text", BASE.encode())
    writer = ArtifactPublisher(rig.artifacts, rig.task, 0, rig.views)
    await writer.apply(rig.context, "doc", Create(rig.task.task_id, (part,), "Doc"))
    await rig.until(is_chunk)
