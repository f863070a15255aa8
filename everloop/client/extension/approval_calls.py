"""Open questions for the caller, over all tasks, including those for others than the owner of their task."""

from collections.abc import AsyncGenerator
from datetime import datetime

from pydantic import JsonValue, field_validator

from everloop.client.extension.extension_calls import ExtensionCalls, ExtensionResponse, read
from everloop.client.task_events import arguments_of
from everloop.workflows.contract.http_extension import Address


class Approval(ExtensionResponse):
    """A question of another owner's task for the caller, who has its scope (`Client.decide`)."""

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
    """An open question for the caller: of a task of the owner, or an approval.

    The first is answered by a client of its `agent` (`Client.answer`, `Client.approve`), the second by
    `Client.decide`.
    """

    context_id: str = ""
    kind: str = "clarification"
    """As of `Question`."""
    purpose: str = "input"
    options: list[str] = []
    timeout: float | None = None
    """Seconds after `asked_at`; None: no timeout."""
    answer_by: str = "message"
    """message, or approval."""
    answer_schema: dict[str, JsonValue] = {}
    """The JSON schema of an answer."""
    expected: str = ""
    """The same in words."""


class Decision(ExtensionResponse):
    """An approver's answer in place of the owner."""

    task_id: str
    question: str
    approved: bool
    by: str
    at: datetime | None = None
    scope: str = ""


class ApprovalCalls(ExtensionCalls):
    """The part of `Client` for open questions."""

    def questions(self, *, owner: str = "") -> AsyncGenerator[OpenQuestion]:
        """Yield the open questions for the caller, of all agents and tasks; approvals come first.

        Args:
            owner: Another owner than the caller's; requires the scope admin.
        """
        return self._listed(
            Address.LIST_QUESTIONS, name="questions", kind=OpenQuestion, query={"owner": owner}
        )

    def approvals(self) -> AsyncGenerator[Approval]:
        """Yield the open questions for the caller's scopes, of all owners, the oldest first.

        Raises:
            ForbiddenError: the caller has no scope that approves.
        """
        return self._listed(Address.LIST_APPROVALS, name="approvals", kind=Approval)

    async def decide(
        self, task_id: str, question_id: str, *, approved: bool = True, note: str = ""
    ) -> Decision:
        """Answer a question of another owner's task. Repeating the same answer is not an error.

        Args:
            task_id: As in `Approval`.
            question_id: As in `Approval`.
            approved: Whether the call may run.
            note: The model reads that of a rejection; at most 2,000 characters.

        Raises:
            NotFoundError: the caller has no such open question.
            InvalidError: another caller has answered it (status 409).
        """
        body: JsonValue = {"approved": approved, "note": note}
        return read(Decision, await self._request(Address.ANSWER_APPROVAL, task_id, question_id, body=body))
