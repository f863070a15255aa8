"""Questions of tasks that ask others than the task's owner, for callers with the scope that they name.

    GET  /approvals                          the open questions, those that have waited longest first
    POST /approvals/{task}/{question}        answer one: {"approved": true, "note": "…"}

A caller learns of other owners' tasks nothing but these questions: agent, tool, arguments, text and age.
Ids are percent-encoded path segments. The scopes must be named: who has none may not come here.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import unquote

import structlog
from opentelemetry import trace
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.scopes import approver_scopes, may_use
from everloop.gateway.context import Caller
from everloop.gateway.errors import (
    STORE_FAILURES,
    AnswerInvalidError,
    TaskEndedError,
    TaskTooLargeError,
    TaskUnknownError,
    UnavailableError,
)
from everloop.gateway.http.errors import error_response
from everloop.gateway.http.requests import A2ARequest, BodyLimits, recognise
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.snapshots import CHILD_SEPARATOR, SMALL_BYTES, Snapshots
from everloop.gateway.tasks.tasks import Tasks
from everloop.stores.views.interface import InvalidPageTokenError, Snapshot, WaitingQuery
from everloop.workflows.contract.messages import AgentMessage
from everloop.workflows.contract.questions import APPROVAL, ApproverAnswer, Question
from everloop.workflows.contract.tasks import TaskView

MAX_PAGE = 100
MAX_NOTE = 2000
"""Characters; the model reads the note of a rejection."""

RETRY_AFTER = 2
"""Seconds after which a client may try again where a server did not answer."""

_log = structlog.get_logger()


class _Verdict(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    approved: bool
    note: str = Field(default="", max_length=MAX_NOTE)


class Approvals:
    """Serves the questions, and hands the answers to their tasks."""

    def __init__(
        self, stores: Stores, tasks: Tasks, snapshots: Snapshots, access: AccessControl, limits: BodyLimits
    ) -> None:
        self._views = stores.views
        self._snapshots = snapshots
        self._tasks = tasks
        self._access = access
        self._limits = limits

    @property
    def routes(self) -> list[Route]:
        """All addresses: the segments are told apart here, because an id may hold a slash."""
        return [
            Route("/approvals", self._get, methods=["GET"]),
            Route("/approvals/{path:path}", self._post, methods=["POST"]),
        ]

    async def _get(self, request: Request) -> Response:
        try:
            caller = await recognise(request, self._access)
            return _answer(await self._list(caller, request))
        except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
            return _refusal(failure)

    async def _post(self, request: Request) -> Response:
        read = A2ARequest(request.scope, request.receive, self._limits, trace.INVALID_SPAN)
        try:
            caller = await recognise(request, self._access)
            scopes = approver_scopes(caller)
            return _answer(await self._decide(caller, scopes, *_ids(request), _verdict(await read.json())))
        except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
            return _refusal(failure)
        finally:
            read.let_go()

    async def _list(self, caller: Caller, request: Request) -> dict[str, JsonValue]:
        query = WaitingQuery(
            approver_scopes(caller),
            _page_size(request.query_params.get("pageSize", "50")),
            request.query_params.get("pageToken", ""),
        )
        page = await self._views.list_waiting(query)
        now = datetime.now(UTC)
        listed: list[JsonValue] = [
            _question_json(task.view, question, now)
            for task in page.tasks
            if may_use(caller, task.view.agent_id)
            for question in _of_scopes(task.view, (task.scope,))
        ]
        return {"approvals": listed, "nextPageToken": page.next_page_token}

    async def _decide(
        self, caller: Caller, scopes: tuple[str, ...], task_id: str, question_id: str, verdict: _Verdict
    ) -> dict[str, JsonValue]:
        """Answer a question; repeating the same answer tells what came of it.

        Raises:
            HTTPException: no such question waits for this caller, or somebody else has answered it.
        """
        snapshot = None if CHILD_SEPARATOR in task_id else await self._views.load(task_id, most=SMALL_BYTES)
        if snapshot is None or not may_use(caller, snapshot.view.agent_id):
            raise _unknown(task_id, question_id)
        if given := await self._find_answer(snapshot, question_id, scopes):
            if (given["by"], given["approved"]) == (_name(caller), verdict.approved):
                return {"taskId": task_id, **given}
            raise HTTPException(HTTPStatus.CONFLICT, f"question {question_id!r} has been answered already")
        question = _asked(snapshot.view, question_id, scopes)
        if question is None:
            raise _unknown(task_id, question_id)
        answer = ApproverAnswer(
            question_id=question.id,
            scope=question.approvers,
            approved=verdict.approved,
            note=verdict.note,
            approver=_name(caller),
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
            return _find_answer((await self._snapshots.whole(snapshot, held)).view, question_id, scopes)


def _asked(view: TaskView, question_id: str, scopes: tuple[str, ...]) -> Question | None:
    return next((question for question in _of_scopes(view, scopes) if question.id == question_id), None)


def _of_scopes(view: TaskView, scopes: tuple[str, ...]) -> Iterator[Question]:
    return (question for question in view.status.questions if question.approvers in scopes)


def _find_answer(view: TaskView, question_id: str, scopes: tuple[str, ...]) -> dict[str, JsonValue] | None:
    """Return what the history of the task tells of an answer to such a question."""
    for message in view.history:
        about = message.metadata.get(APPROVAL) if isinstance(message, AgentMessage) else None
        if isinstance(about, dict) and about.get("question") == question_id and about.get("scope") in scopes:
            return about
    return None


def _question_json(view: TaskView, question: Question, now: datetime) -> dict[str, JsonValue]:
    asked_at = question.asked_at or view.status.at
    return {
        "taskId": view.task_id,
        "questionId": question.id,
        "agent": view.agent_id,
        "tool": question.call.name,
        "arguments": question.call.arguments,
        "text": question.text,
        "scope": question.approvers,
        "askedAt": asked_at.isoformat(),
        "ageSeconds": max(0, int((now - asked_at).total_seconds())),
    }


def _name(caller: Caller) -> str:
    """Return who answers, as people read it."""
    named = caller.subject and caller.subject != caller.owner
    return f"{caller.owner} ({caller.subject})" if named else caller.owner


def _ids(request: Request) -> tuple[str, str]:
    """Return the ids of task and question in the path; that of a question may hold slashes."""
    raw = bytes(request.scope["raw_path"]).decode("ascii", errors="replace")
    task_id, _, question_id = raw.removeprefix("/approvals/").partition("/")
    if not (task_id and question_id):
        raise HTTPException(HTTPStatus.NOT_FOUND, "no such address; POST to /approvals/{task}/{question}")
    return unquote(task_id), unquote(question_id)


def _verdict(body: object) -> _Verdict:
    try:
        return _Verdict.model_validate(body)
    except ValidationError:
        expected = f'{{"approved": true, "note": "…"}}; the note has at most {MAX_NOTE} characters'
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is no answer; send {expected}") from None


def _page_size(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PAGE))
    if not (is_number and 0 < int(text) <= MAX_PAGE):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"pageSize is no number from 1 to {MAX_PAGE}")
    return int(text)


def _unknown(task_id: str, question_id: str) -> HTTPException:
    """The same for whatever the caller may not see: ids are not to be probed."""
    return HTTPException(
        HTTPStatus.NOT_FOUND, f"no question {question_id!r} of a task {task_id!r} waits for these credentials"
    )


def _answer(content: dict[str, JsonValue]) -> Response:
    return JSONResponse(content, headers={"Cache-Control": "no-store"})


def _refusal(failure: Exception) -> Response:
    return error_response(_explain(failure) or failure, "approval")


def _explain(failure: Exception) -> HTTPException | None:
    match failure:
        case InvalidPageTokenError():
            return HTTPException(HTTPStatus.BAD_REQUEST, str(failure))
        case AnswerInvalidError() | TaskEndedError() | TaskTooLargeError() | TaskUnknownError():
            return HTTPException(HTTPStatus.CONFLICT, str(failure))
        case _ if isinstance(failure, (UnavailableError, *STORE_FAILURES)):
            text = "a server that this takes does not answer now; send the same request again"
            return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": str(RETRY_AFTER)})
        case _:
            return None
