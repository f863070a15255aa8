"""Which tool calls of a reply write artifacts, and which of those are shown before they run."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_core import to_json

from everloop.activities.tool_arguments import InvalidArgumentsError, read_arguments
from everloop.agents.artifact_drafts import ArtifactDraft
from everloop.agents.tool import Tool
from everloop.stores.artifacts.errors import MAX_PARTS
from everloop.stores.artifacts.interface import ArtifactIdError
from everloop.stores.artifacts.rules import check_id
from everloop.stores.artifacts.shown import SHOWN_BYTES, SHOWN_PART_BYTES, Shown, ShownPart
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import AssistantMessage, DataPart, Part, TextPart, ToolCall
from everloop.workflows.contract.parts import is_sendable


@dataclass(frozen=True)
class DraftedReply:
    """Which attempt at which reply of a task writes artifacts, and with which tools.

    `attempt` is numbered by `attempt_number`.
    """

    task_id: str
    position: int
    attempt: int
    tools: Mapping[str, Tool]


def drafts_of(reply: AssistantMessage, tools: Mapping[str, Tool]) -> dict[int, ArtifactDraft]:
    """Return, by the number of the call, what a whole reply is about to write.

    Only the first call for each artifact is among them: what others do depends on it. A call whose arguments
    do not fit will write nothing.
    """
    drafts: dict[int, ArtifactDraft] = {}
    taken: set[str] = set()
    for number, call in enumerate(reply.tool_calls):
        draft = _valid_draft(call, tools.get(call.name))
        if draft and draft.artifact_id not in taken:
            taken.add(draft.artifact_id)
            drafts[number] = draft
    return drafts


def is_showable(draft: ArtifactDraft) -> bool:
    """Whether there is something to show before the call has run, and views show such content."""
    parts = draft.parts or ()
    if not 0 < len(parts) <= MAX_PARTS or not _is_usable(draft.artifact_id):
        return False
    return shown_size(draft) <= SHOWN_BYTES and all(map(_is_sendable, parts))


def shown_parts(draft: ArtifactDraft) -> Shown:
    """Return what the call writes as it is shown."""
    return tuple(ShownPart(part) for part in draft.parts or ())


def shown_size(draft: ArtifactDraft) -> int:
    """Return how many bytes of an artifact the call writes; more than fit if a part has too many."""
    return sum(map(_size, draft.parts or ()))


def _valid_draft(call: ToolCall, tool: Tool | None) -> ArtifactDraft | None:
    if tool is None or tool.draft_of is None:
        return None
    try:
        read_arguments(tool, call.arguments)
    except InvalidArgumentsError:
        return None
    return tool.draft_of(call.arguments)


def _is_usable(artifact_id: str) -> bool:
    try:
        return check_id(artifact_id) != RESPONSE_ARTIFACT
    except ArtifactIdError:
        return False


def _is_sendable(part: Part) -> bool:
    return not isinstance(part, DataPart) or is_sendable(part.data)


def _size(part: Part) -> int:
    if isinstance(part, TextPart):
        return len(part.text.encode())
    size = len(to_json(part.data)) if isinstance(part, DataPart) else 0
    return size if size <= SHOWN_PART_BYTES else SHOWN_BYTES + 1
