"""Questions for the tests of answers, and the secrets that were stored."""

from pydantic import JsonValue

from everloop.stores.secrets import Secrets
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import Question, QuestionKind

CALL = ToolCall(id="c1", name="deploy", arguments="{}")
SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 18}, "name": {"type": "string"}},
    "required": ["age"],
    "additionalProperties": False,
}


def ask(kind: QuestionKind, question_id: str = "q", **fields: object) -> Question:
    return Question.model_validate(
        {"id": question_id, "kind": kind, "text": "?", "call": CALL, "secret_name": question_id, **fields}
    )


async def kept(secrets: Secrets, message_id: str = "m", *, task_id: str = "task") -> JsonValue:
    """Return the answer of a message, as a tool gets it that accepts it."""
    await secrets.accept(task_id, message_id, "name")
    return await secrets.get(task_id, "name")
