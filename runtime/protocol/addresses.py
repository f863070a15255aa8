"""Where a gateway serves the parts of artifacts, and results of tools: its downloads answer there."""

from urllib.parse import quote

ARTIFACTS = "artifacts"
PARTS = "parts"
RESULTS = "results"


def artifact_url(public_url: str, context_id: str, artifact_id: str) -> str:
    """Return the address of what is known of an artifact; `public_url` ends with a slash."""
    return f"{public_url}{ARTIFACTS}/{quote(context_id, safe='')}/{quote(artifact_id, safe='')}"


def part_url(public_url: str, context_id: str, artifact_id: str, index: int) -> str:
    """Return the address of the content of a part."""
    return f"{artifact_url(public_url, context_id, artifact_id)}/{PARTS}/{index}"


def result_url(public_url: str, task_id: str, call_id: str) -> str:
    """Return the address of the whole result of a tool call."""
    return f"{public_url}{RESULTS}/{quote(task_id, safe='')}/{quote(call_id, safe='')}"
