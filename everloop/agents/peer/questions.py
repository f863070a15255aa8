"""What a peer asks, as a question to our own user, and the answer on its way back.

An Everloop says in a data part what kind of answer it wants; of any other agent we know its words only.
"""

import hashlib
import json
from collections.abc import Callable, Mapping

from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue, TypeAdapter, ValidationError

from everloop.agents.errors import QuestionDefinitionError
from everloop.agents.peer.answers import value_of, value_part, words_of
from everloop.agents.questions import AuthRequired, InputKind, InputRequired, QuestionRequired
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.questions import QUESTION, Answer, QuestionKind

AUTH_REQUIRED = pb.TaskState.TASK_STATE_AUTH_REQUIRED
INPUT_REQUIRED = pb.TaskState.TASK_STATE_INPUT_REQUIRED

_SCHEMA: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
_OPTIONS: TypeAdapter[list[str]] = TypeAdapter(list[str])
_KINDS: Mapping[str, InputKind] = {
    "clarification": "clarification",
    "confirmation": "confirmation",
    "selection": "selection",
    "data": "data",
}


def question_of(
    status: pb.TaskStatus, secret_name: str, hide: Callable[[str], str], problem: str = ""
) -> QuestionRequired:
    """Return the question of a status that waits for somebody; of several, the first.

    `problem` is said before it, and `hide` takes secrets out. One that is asked for is kept as `secret_name`.
    """
    asked = _described(status)
    text = str(asked.get("text") or words_of(status.message) or _wordless(status))
    text = hide(f"{problem}\n\n{text}" if problem else text)
    is_secret = asked.get("kind") == "auth" if asked else status.state == AUTH_REQUIRED
    return AuthRequired(text, secret_name) if is_secret else _input(text, asked)


async def answer_parts(status: pb.TaskStatus, answer: Answer, call: ToolContext) -> tuple[list[pb.Part], str]:
    """Return what to tell a peer, and the id of the question of its that this answers (empty: unknown)."""
    question_id = str(_described(status).get("id") or "")
    if answer.secret_name:
        return [value_part(await call.secret(answer.secret_name))], question_id
    if answer.kind is not QuestionKind.CONFIRMATION:
        return [value_part(answer.value)], question_id
    if question_id:
        return [value_part({"approved": bool(answer.value), "note": answer.note})], question_id
    said = "yes" if answer.value else "no"
    return [value_part(f"{said}, {answer.note}" if answer.note else said)], ""


def answer_metadata(question_id: str) -> dict[str, str]:
    """Return the metadata that name the question to an Everloop."""
    return {QUESTION: question_id} if question_id else {}


def fingerprint(status: pb.TaskStatus) -> str:
    """Return what tells one asking from any other, also of the same question.

    That is its time: the message may have moved to the history when an answer came.
    """
    return str(status.timestamp.ToNanoseconds()) if status.HasField("timestamp") else meaning(status)


def meaning(status: pb.TaskStatus) -> str:
    """Return what tells a question from another, however often it is asked, and whatever is asked with it."""
    if asked := _described(status):
        said = json.dumps(asked, sort_keys=True).encode()
    else:
        said = pb.Message(parts=status.message.parts).SerializeToString(deterministic=True)
    return hashlib.sha256(said).hexdigest()[:16]


def _input(text: str, asked: Mapping[str, JsonValue]) -> InputRequired:
    """Return the question as the peer means it, or else one that takes any answer."""
    kind = _KINDS.get(str(asked.get("kind")), "clarification")
    try:
        schema = _SCHEMA.validate_python(asked.get("json_schema") or {}) if kind == "data" else None
        options = _OPTIONS.validate_python(asked.get("options") or []) if kind == "selection" else ()
        return InputRequired(text, kind, options=options, schema=schema)
    except (ValidationError, QuestionDefinitionError):
        return InputRequired(text)


def _described(status: pb.TaskStatus) -> Mapping[str, JsonValue]:
    """Return what an Everloop tells programs of its first open question; of other agents, nothing."""
    for part in status.message.parts:
        data = value_of(part) if part.HasField("data") else None
        questions = data.get("questions") if isinstance(data, dict) else None
        if isinstance(questions, list) and questions and isinstance(questions[0], dict):
            return questions[0]
    return {}


def _wordless(status: pb.TaskStatus) -> str:
    wanted = "a secret" if status.state == AUTH_REQUIRED else "an answer"
    return f"The agent that was asked wants {wanted}, and does not say what for."
