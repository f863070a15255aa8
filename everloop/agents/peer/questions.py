"""Questions of a peer to our own user, and the answers to the peer."""

import hashlib
from collections.abc import Callable

from a2a.types import a2a_pb2 as pb
from pydantic_core import to_json

from everloop.agents.errors import QuestionDefinitionError
from everloop.agents.peer.peer_answers import value_part
from everloop.agents.question_exceptions import AuthRequired, InputRequired, QuestionRequired
from everloop.agents.tool_context import ToolContext
from everloop.client.content import text_of
from everloop.client.fold import Task
from everloop.client.task_events import Question
from everloop.workflows.contract.questions import Answer, QuestionKind

Hide = Callable[[str], str]
"""Redacts secrets in a text."""


def question_of(task: Task, secret_name: str, hide: Hide, problem: str = "") -> QuestionRequired:
    """Return the question of a waiting task; of several, the first.

    `problem` precedes it. A requested secret is stored as `secret_name`.
    """
    asked = task.questions[0]
    text = asked.text or text_of(task.status.message.parts) or _wordless(asked)
    text = hide(f"{problem}\n\n{text}" if problem else text)
    if asked.kind == "auth":
        return AuthRequired(text, secret_name)
    try:
        return _input(text, asked)
    except QuestionDefinitionError:
        return InputRequired(text)


def _input(text: str, asked: Question) -> InputRequired:
    match asked.kind:
        case "selection":
            return InputRequired(text, "selection", options=asked.options)
        case "data":
            return InputRequired(text, "data", schema=dict(asked.json_schema))
        case "confirmation":
            return InputRequired(text, "confirmation")
        case _:
            return InputRequired(text)


async def answer_parts(asked: Question, answer: Answer, call: ToolContext) -> list[pb.Part]:
    """Return the answer to a question as parts."""
    if answer.secret_name:
        return [value_part(await call.secret(answer.secret_name))]
    if answer.kind is not QuestionKind.CONFIRMATION:
        return [value_part(answer.value)]
    if asked.id:
        return [value_part({"approved": bool(answer.value), "note": answer.note})]
    said = "yes" if answer.value else "no"
    return [value_part(f"{said}, {answer.note}" if answer.note else said)]


def fingerprint(task: Task) -> str:
    """Return the identity of one occurrence of a question: its time.

    The message may have moved to the history when an answer came.
    """
    has_time = task.status.HasField("timestamp")
    return str(task.status.timestamp.ToNanoseconds()) if has_time else meaning(task)


def meaning(task: Task) -> str:
    """Return the identity of a question, the same for each occurrence and beside other questions."""
    asked = task.questions[0]
    said = (asked.id, asked.kind, asked.text, asked.options, asked.json_schema, asked.tool, asked.arguments)
    return hashlib.sha256(to_json(said)).hexdigest()[:16]


def _wordless(asked: Question) -> str:
    wanted = "a secret" if asked.kind == "auth" else "an answer"
    return f"The agent that was asked wants {wanted}, and does not say what for."
