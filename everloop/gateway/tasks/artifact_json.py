"""Metadata of artifacts as JSON for clients. Pure."""

from pydantic import JsonValue

from everloop.runtime.protocol.a2a_tasks import artifact_url, part_url, timestamp
from everloop.workflows.contract.artifacts import ArtifactPart, StoredArtifact


def artifact_json(
    artifact: StoredArtifact, context_id: str, public_url: str, *, operations: bool
) -> dict[str, JsonValue]:
    """Return an artifact without its content; `context_id` is the client's. Names are those of A2A."""
    fields: dict[str, JsonValue] = {
        "artifactId": artifact.artifact_id,
        "contextId": context_id,
        "taskId": artifact.task_id,
        "name": artifact.name,
        "description": artifact.description,
        "status": artifact.status.value,
        "isInput": artifact.is_input,
        "version": artifact.version,
        "createdAt": timestamp(artifact.created_at),
        "updatedAt": timestamp(artifact.updated_at),
        "completedAt": timestamp(artifact.completed_at) if artifact.completed_at else None,
        "url": artifact_url(public_url, context_id, artifact.artifact_id),
        "parts": [
            _part_json(part)
            | {"url": part.url or part_url(public_url, context_id, artifact.artifact_id, part.index)}
            for part in artifact.parts
        ],
    }
    if operations:
        fields["lastChunkIndex"] = artifact.last_chunk_index
        fields["operations"] = [
            {"kind": each.kind, "at": timestamp(each.at), "index": each.index} for each in artifact.operations
        ]
    return fields


def _part_json(part: ArtifactPart) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {
        "index": part.index,
        "kind": part.kind,
        "mediaType": part.media_type,
        "filename": part.filename,
        "size": part.size,
    }
    if part.kind == "rows":
        fields |= {"rows": part.rows, "rowSchema": part.row_schema}
    return fields
