"""What the model reads of a peer's task that is done."""

from collections.abc import Iterator, Sequence

from a2a.types import a2a_pb2 as pb

from everloop.agents.peer.artifacts import MAX_ARTIFACTS, Imported
from everloop.agents.peer.parts import joined, text_of, words_of
from everloop.workflows.contract.events import RESPONSE_ARTIFACT

MAX_SHOWN = 50_000
"""Characters of all artifacts but the answer itself that the model reads at once."""

_REST = "the artifact that was taken over has all of it"


def answer_of(task: pb.Task, imported: Sequence[Imported]) -> str:
    """Return the answer: what the artifacts say, then the last status; failing both, the last message.

    Behind it stand the artifacts that were taken over, and the context for whoever wants to go on.
    """
    said = [*_artifact_texts(task), words_of(task.status.message)]
    texts = list(dict.fromkeys(filter(None, (text.strip() for text in said))))
    lines = ["\n\n".join(texts) or _last_message(task) or "(the agent has said nothing)"]
    if imported:
        lines.append("Artifacts: " + "; ".join(map(str, imported)))
    if len(imported) == MAX_ARTIFACTS < len(task.artifacts):
        lines.append(f"(only the first {MAX_ARTIFACTS} artifacts were taken over)")
    return "\n\n".join([*lines, _context(task.context_id)]).strip()


def message_answer(message: pb.Message) -> str:
    """Return the answer of a peer that made no task of it."""
    text = text_of(message.parts).strip() or "(the agent has said nothing)"
    return f"{text}\n\n{_context(message.context_id)}".strip()


def reason_of(task: pb.Task) -> str:
    """Return why a task came to nothing, as the peer says it."""
    return words_of(task.status.message).strip() or "it gave no reason"


def _artifact_texts(task: pb.Task) -> Iterator[str]:
    left = MAX_SHOWN
    for artifact in task.artifacts:
        text = text_of(joined(artifact.parts))
        if artifact.artifact_id == RESPONSE_ARTIFACT:
            yield text
        else:
            yield text if len(text) <= left else f"{text[:left]}\n(cut; {_REST})"
            left = max(0, left - len(text))


def _last_message(task: pb.Task) -> str:
    said = [text_of(one.parts).strip() for one in task.history if one.role == pb.Role.ROLE_AGENT]
    return said[-1] if said else ""


def _context(context_id: str) -> str:
    return f"(context: {context_id})" if context_id else ""
