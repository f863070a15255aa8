"""What waits for the caller, over all tasks; questions that ask others than the owner of their task."""

from collections.abc import AsyncGenerator
from datetime import datetime

from pydantic import JsonValue, field_validator

from everloop.client.events import arguments_of
from everloop.client.extension.calls import Answer, ExtensionCalls, read, segment


class Approval(Answer):
    """A question of somebody's task that asks the caller, who has its scope (`Client.decide`)."""

    task_id: str
    question_id: str
    agent: str = ""
    tool: str = ""
    arguments: JsonValue = None
    text: str = ""
    scope: str = ""
    asked_at: datetime | None = None
    age_seconds: int = 0

    _arguments = field_validator("arguments", mode="before")(arguments_of)


class OpenQuestion(Approval):
    """A question that waits for the caller: of a task of the owner, or an approval.

    The first is answered by a client of its `agent` (`Client.answer`, `Client.approve`), the second by
    `Client.decide`.
    """

    context_id: str = ""
    kind: str = "clarification"
    """As of `Question`."""
    purpose: str = "input"
    options: list[str] = []
    timeout: float | None = None
    """Seconds from `asked_at` on; None: it does not end."""
    answer_by: str = "message"
    """message, or approval."""
    answer_schema: dict[str, JsonValue] = {}
    """The JSON schema of an answer."""
    expected: str = ""
    """The same in words."""


class Decision(Answer):
    """What somebody said in the owner's place."""

    task_id: str
    question: str
    approved: bool
    by: str
    at: datetime | None = None
    scope: str = ""


class ApprovalCalls(ExtensionCalls):
    """The part of `Client` that is about what waits for people."""

    def questions(self, *, owner: str = "") -> AsyncGenerator[OpenQuestion]:
        """Yield what waits for the caller, of all agents and tasks; approvals come first.

        Args:
            owner: Whose, where that is not the caller; takes the scope admin.
        """
        return self._listed("/questions", "questions", OpenQuestion, {"owner": owner})

    def approvals(self) -> AsyncGenerator[Approval]:
        """Yield the open questions for the caller's scopes, of all owners, the oldest first.

        Raises:
            ForbiddenError: the caller has no scope that approves.
        """
        return self._listed("/approvals", "approvals", Approval)

    async def decide(
        self, task_id: str, question_id: str, *, approved: bool = True, note: str = ""
    ) -> Decision:
        """Answer a question of somebody's task in its owner's place; saying the same again is no error.

        Args:
            task_id: As `Approval` has it.
            question_id: As `Approval` has it.
            approved: Whether the call may run.
            note: The model reads that of a no; at most 2,000 characters.

        Raises:
            NotFoundError: no such question waits for the caller.
            InvalidError: somebody else has answered it (status 409).
        """
        path = f"/approvals/{segment(task_id)}/{segment(question_id)}"
        body: JsonValue = {"approved": approved, "note": note}
        return read(Decision, await self._asked("POST", path, body))
