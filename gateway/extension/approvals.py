"""Questions of tasks that ask others than the task's owner, for callers with the scope that they name.

    GET  /approvals                          the open questions, those that have waited longest first
    POST /approvals/{task}/{question}        answer one: {"approved": true, "note": "…"}

A caller learns of other owners' tasks nothing but these questions: agent, tool, arguments, text and age.
The scopes must be named: who has none may not come here.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import ClassVar

import structlog
from pydantic import Field, JsonValue
from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import approver_scopes, may_use
from everloop.gateway.context import Caller
from everloop.gateway.errors import AnswerInvalidError, TaskEndedError, TaskTooLargeError, TaskUnknownError
from everloop.gateway.extension.shell import MAX_NOTE, Body, Call, Extension, answer, name_of
from everloop.gateway.http.errors import ConflictError, NotFoundError
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.snapshots import CHILD_SEPARATOR, SMALL_BYTES, Snapshots
from everloop.gateway.tasks.tasks import Tasks
from everloop.runtime.protocol.tasks import timestamp
from everloop.stores.views.interface import Snapshot, WaitingPage, WaitingQuery
from everloop.workflows.contract.messages import AgentMessage
from everloop.workflows.contract.questions import APPROVAL, ApproverAnswer, Question
from everloop.workflows.contract.tasks import TaskView

_log = structlog.get_logger()


class _Verdict(Body):
    expected: ClassVar[str] = f'{{"approved": true, "note": "…"}}; the note has at most {MAX_NOTE} characters'

    approved: bool
    note: str = Field(default="", max_length=MAX_NOTE)


class Approvals:
    """Serves the questions, and hands the answers to their tasks."""

    def __init__(self, stores: Stores, tasks: Tasks, snapshots: Snapshots, extension: Extension) -> None:
        self._views = stores.views
        self._snapshots = snapshots
        self._tasks = tasks
        self._extension = extension

    @property
    def routes(self) -> list[Route]:
        """All addresses."""
        route = self._extension.route
        return [
            route("/approvals", authorize=approver_scopes, GET=self._list),
            route("/approvals/{task}/{question}", authorize=approver_scopes, POST=self._answer),
        ]

    async def _list(self, call: Call) -> Response:
        page = call.page
        found = await self._views.list_waiting(
            WaitingQuery(approver_scopes(call.caller), page.size, page.token)
        )
        now = datetime.now(UTC)
        listed: list[JsonValue] = [question_json(*each, now) for each in asked_in(found, call.caller)]
        return answer({"approvals": listed, "nextPageToken": found.next_page_token})

    async def _answer(self, call: Call) -> Response:
        verdict = await call.body(_Verdict)
        try:
            given = await self._decide(call.caller, call.id("task"), call.id("question"), verdict)
            return answer({**given, "at": timestamp(datetime.fromisoformat(str(given["at"])))})
        except (AnswerInvalidError, TaskEndedError, TaskTooLargeError, TaskUnknownError) as failure:
            raise ConflictError(str(failure)) from failure

    async def _decide(
        self, caller: Caller, task_id: str, question_id: str, verdict: _Verdict
    ) -> dict[str, JsonValue]:
        """Answer a question; repeating the same answer tells what came of it.

        Raises:
            NotFoundError: no such question waits for this caller.
            ConflictError: somebody else has answered it.
        """
        scopes = approver_scopes(caller)
        snapshot = None if CHILD_SEPARATOR in task_id else await self._views.load(task_id, most=SMALL_BYTES)
        if snapshot is None or not may_use(caller, snapshot.view.agent_id):
            raise _unknown(task_id, question_id)
        if given := await self._find_answer(snapshot, question_id, scopes):
            if (given["by"], given["approved"]) == (name_of(caller), verdict.approved):
                return {"taskId": task_id, **given}
            raise ConflictError(f"question {question_id!r} has been answered already")
        question = _asked(snapshot.view, question_id, scopes)
        if question is None:
            raise _unknown(task_id, question_id)
        answer = ApproverAnswer(
            question_id=question.id,
            scope=question.approvers,
            approved=verdict.approved,
            note=verdict.note,
            approver=name_of(caller),
            owner=caller.owner,
            scheme=caller.scheme,
            subject=caller.subject,
        )
        at = await self._tasks.answer_for_owner(task_id, answer)
        _log.info(
            "question answered in its owner's place",
            task_id=task_id,
            question_id=question.id,
            agent_id=snapshot.view.agent_id,
            tool=question.call.name,
            approved=answer.approved,
            approver=answer.approver,
            scope=answer.scope,
        )
        given = {"question": question.id, "approved": answer.approved, "by": answer.approver, "at": at}
        return {"taskId": task_id, **given, "scope": answer.scope}

    async def _find_answer(
        self, snapshot: Snapshot, question_id: str, scopes: tuple[str, ...]
    ) -> dict[str, JsonValue] | None:
        """Return what the task tells of an answer to such a question; None while it is open, or unknown.

        Raises:
            TaskTooLargeError, UnavailableNowError: the history is large, and cannot be read now.
        """
        if _asked(snapshot.view, question_id, scopes):
            return None
        with ExitStack() as held:
            view = (await self._snapshots.whole(snapshot, held)).view
        for message in view.history:
            about = message.metadata.get(APPROVAL) if isinstance(message, AgentMessage) else None
            if (
                isinstance(about, dict)
                and about.get("question") == question_id
                and about.get("scope") in scopes
            ):
                return about
        return None


def _asked(view: TaskView, question_id: str, scopes: tuple[str, ...]) -> Question | None:
    for question in view.status.questions:
        if question.id == question_id and question.approvers in scopes:
            return question
    return None


def asked_in(waiting: WaitingPage, caller: Caller) -> Iterator[tuple[TaskView, Question]]:
    """Yield the questions of a page of waiting tasks that a caller may answer, each with its task."""
    for task in waiting.tasks:
        if may_use(caller, task.view.agent_id):
            yield from (
                (task.view, each) for each in task.view.status.questions if each.approvers == task.scope
            )


def question_json(view: TaskView, question: Question, now: datetime) -> dict[str, JsonValue]:
    """Return what those see of a question who may answer it."""
    asked_at = question.asked_at or view.status.at
    return {
        "taskId": view.task_id,
        "questionId": question.id,
        "agent": view.agent_id,
        "tool": question.call.name,
        "arguments": question.call.arguments,
        "text": question.text,
        "scope": question.approvers,
        "askedAt": timestamp(asked_at),
        "ageSeconds": max(0, int((now - asked_at).total_seconds())),
    }


def _unknown(task_id: str, question_id: str) -> NotFoundError:
    """The same for whatever the caller may not see: ids are not to be probed."""
    return NotFoundError(f"no question {question_id!r} of a task {task_id!r} waits for these credentials")
