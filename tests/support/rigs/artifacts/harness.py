"""A model's side: tests call the tools of the plugin `artifacts` as a model does."""

import json

from pydantic import JsonValue

from everloop.agents.artifact_tools import artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.artifacts.rendering import render_artifact
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import Part, ToolMessage
from everloop.workflows.contract.names import context_key
from tests.support.rigs.tool_rig import ToolRig


class ArtifactHarness:
    """Calls tools in sequence."""

    def __init__(self, *, granular: bool = False) -> None:
        tools = artifacts("granular" if granular else "update").tools
        self.rig = ToolRig(*tools)
        self.context = context_key(self.rig.task.owner, self.rig.task.context_id)
        self._calls = 0

    async def call(self, tool: str, **arguments: JsonValue) -> ToolMessage:
        self._calls += 1
        call = self.rig.call(tool, json.dumps(arguments), call_id=f"call-{self._calls}")
        return await self.rig.run(call)

    async def update(
        self, *parts: JsonValue, append: bool = False, last_chunk: bool = False, **named: JsonValue
    ) -> ToolMessage:
        artifact: JsonValue = {"artifact_id": "doc", "parts": [*parts], **named}
        return await self.call("artifact_update", append=append, last_chunk=last_chunk, artifact=artifact)

    async def stored(self, artifact_id: str = "doc") -> StoredArtifact:
        return await self.rig.artifacts.get_artifact(self.context, artifact_id)

    async def parts(self, artifact_id: str = "doc") -> tuple[Part, ...]:
        return (await render_artifact(self.rig.artifacts, await self.stored(artifact_id))).parts

    async def put(self, artifact_id: str, content: bytes, media_type: str = "") -> None:
        """Store an artifact of another author than the model."""
        part = NewPart("file", content, media_type, "a.bin")
        await self.rig.artifacts.apply(self.context, artifact_id, Create("t", (part,), is_input=True))
