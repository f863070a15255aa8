"""Questions of tasks: those that the caller may answer, for own tasks and for those of others.

    GET  /questions                          open questions of the owner's tasks, and approvals of others'
    GET  /approvals                          open approvals of others' tasks, the oldest first
    POST /approvals/{task}/{question}        answer one: {"approved": true, "note": "…"}

A question of an own task is answered by a message to that task, as in A2A. An approval is answered at
its address, by callers with the scope that it names. They see only these questions of other owners'
tasks: agent, tool, arguments, text and age. The scopes must be granted by name.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import ClassVar

import structlog
from pydantic import Field, JsonValue
from starlette.responses import Response

from everloop.gateway.auth.scopes import approver_scopes, may_use, named_approver_scopes
from everloop.gateway.context import Caller
from everloop.gateway.errors import AnswerInvalidError, TaskEndedError, TaskTooLargeError, TaskUnknownError
from everloop.gateway.http.http_calls import MAX_NOTE, HttpCall, RequestBody, answer, name_of
from everloop.gateway.http.http_errors import ConflictError, NotFoundError
from everloop.gateway.requests.fields import page_token
from everloop.gateway.services import Services
from everloop.gateway.tasks.snapshots import CHILD_SEPARATOR, SMALL_BYTES
from everloop.runtime.protocol.a2a_tasks import timestamp
from everloop.stores.log.log_types import Snapshot, TaskQuery, WaitingPage, WaitingQuery
from everloop.workflows.contract.messages import AgentMessage
from everloop.workflows.contract.questions import APPROVAL, ApproverAnswer, Question, QuestionKind, expected
from everloop.workflows.contract.tasks import TaskState, TaskView

_log = structlog.get_logger()


class _Verdict(RequestBody):
    expected: ClassVar[str] = f'{{"approved": true, "note": "…"}}; the note has at most {MAX_NOTE} characters'

    approved: bool
    note: str = Field(default="", max_length=MAX_NOTE)


async def list_approvals(services: Services, call: HttpCall) -> Response:
    """List the questions of others that the caller may answer."""
    page = call.page
    found = await services.views.list_waiting(
        WaitingQuery(approver_scopes(call.caller), page.size, page.token)
    )
    now = datetime.now(UTC)
    listed: list[JsonValue] = [question_json(*each, now) for each in questions_in(found, call.caller)]
    return answer({"approvals": listed, "nextPageToken": found.next_page_token})


async def answer_approval(services: Services, call: HttpCall) -> Response:
    """Answer a question of another owner's task."""
    verdict = await call.body(_Verdict)
    try:
        given = await _decide(services, call.caller, call.id("task"), call.id("question"), verdict)
        return answer({**given, "at": timestamp(datetime.fromisoformat(str(given["at"])))})
    except (AnswerInvalidError, TaskEndedError, TaskTooLargeError, TaskUnknownError) as failure:
        raise ConflictError(str(failure)) from failure


async def _decide(
    services: Services, caller: Caller, task_id: str, question_id: str, verdict: _Verdict
) -> dict[str, JsonValue]:
    """Answer a question. Repeating the same answer returns its outcome.

    Raises:
        NotFoundError: this caller has no such open question.
        ConflictError: another caller has answered it.
    """
    scopes = approver_scopes(caller)
    snapshot = None if CHILD_SEPARATOR in task_id else await services.views.load(task_id, most=SMALL_BYTES)
    if snapshot is None or not may_use(caller, snapshot.view.agent_id):
        raise _unknown(task_id, question_id)
    if given := await _find_answer(services, snapshot, question_id, scopes):
        if (given["by"], given["approved"]) == (name_of(caller), verdict.approved):
            return {"taskId": task_id, **given}
        raise ConflictError(f"question {question_id!r} has been answered already")
    question = _open_question(snapshot.view, question_id, scopes)
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
    at = await services.tasks.answer_for_owner(task_id, answer)
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
    services: Services, snapshot: Snapshot, question_id: str, scopes: tuple[str, ...]
) -> dict[str, JsonValue] | None:
    """Return the recorded answer to such a question; None while it is open, or unknown.

    Raises:
        TaskTooLargeError, UnavailableNowError: the history is large, and cannot be read now.
    """
    if _open_question(snapshot.view, question_id, scopes):
        return None
    with ExitStack() as held:
        view = (await services.snapshots.complete(snapshot, held)).view
    for message in view.history:
        about = message.metadata.get(APPROVAL) if isinstance(message, AgentMessage) else None
        if isinstance(about, dict) and about.get("question") == question_id and about.get("scope") in scopes:
            return about
    return None


def _open_question(view: TaskView, question_id: str, scopes: tuple[str, ...]) -> Question | None:
    for question in view.status.questions:
        if question.id == question_id and question.approvers in scopes:
            return question
    return None


def questions_in(waiting: WaitingPage, caller: Caller) -> Iterator[tuple[TaskView, Question]]:
    """Yield the questions of a page of waiting tasks that a caller may answer, each with its task."""
    for task in waiting.tasks:
        if may_use(caller, task.view.agent_id):
            yield from (
                (task.view, each) for each in task.view.status.questions if each.approvers == task.scope
            )


def question_json(view: TaskView, question: Question, now: datetime) -> dict[str, JsonValue]:
    """Return the visible fields of a question for callers who may answer it."""
    since = question.asked_at or view.status.at
    return {
        "taskId": view.task_id,
        "questionId": question.id,
        "agent": view.agent_id,
        "tool": question.call.name,
        "arguments": question.call.arguments,
        "text": question.text,
        "scope": question.approvers,
        "askedAt": timestamp(since),
        "ageSeconds": max(0, int((now - since).total_seconds())),
    }


def _unknown(task_id: str, question_id: str) -> NotFoundError:
    """Return the same error for all invisible questions, so that ids cannot be probed."""
    return NotFoundError(f"no question {question_id!r} of a task {task_id!r} waits for these credentials")


# All open questions of the caller.

_WAITING = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)

_APPROVALS = ""
"""Stands for the approvals among the ids of agents. Approvals belong to no single agent."""

_CONFIRMATION: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
    "required": ["approved"],
    "additionalProperties": False,
}

_List = tuple[str, str]
"""An agent and a state, whose tasks are a list in Redis."""


async def list_questions(services: Services, call: HttpCall) -> Response:
    """List all open questions of the caller."""
    page = call.page
    lists = list(_lists_of(services, call))
    first, token = page.read_token(lambda token: _read_place(token, lists), (0, ""))
    found = list[JsonValue]()
    for number, each in enumerate(lists[first:], first):
        more, token = await _read(services, call, each, page.size - len(found), token)
        found += more
        if token or len(found) >= page.size:
            following = (number, token) if token else (number + 1, "")
            return answer({"questions": found, "nextPageToken": _token(lists, *following)})
    return answer({"questions": found, "nextPageToken": ""})


def _lists_of(services: Services, call: HttpCall) -> Iterable[_List]:
    """Return the lists to read. Approvals appear only for the caller's own owner."""
    if call.owner == call.caller.owner and named_approver_scopes(call.caller):
        yield (_APPROVALS, "")
    for agent in services.agents:
        if may_use(call.caller, agent.id):
            yield from ((agent.id, state.value) for state in _WAITING)


async def _read(
    services: Services, call: HttpCall, each: _List, size: int, token: str
) -> tuple[list[JsonValue], str]:
    """Return the next page of a list, and the position after it."""
    now, (agent_id, state) = datetime.now(UTC), each
    if agent_id == _APPROVALS:
        waiting = await services.views.list_waiting(
            WaitingQuery(named_approver_scopes(call.caller), size, token)
        )
        approvals = [_json(*each, now) for each in questions_in(waiting, call.caller)]
        return approvals, waiting.next_page_token
    query = TaskQuery(
        owner=call.owner,
        agent_id=agent_id,
        state=TaskState(state),
        page_size=size,
        page_token=token,
        with_history=0,
        with_artifacts=False,
    )
    tasks = await services.views.list_tasks(query)
    own = [
        _json(view, question, now)
        for view in tasks.views
        for question in view.status.questions
        if question.is_for_owner
    ]
    return own, tasks.next_page_token


def answer_schema(question: Question) -> dict[str, JsonValue]:
    """Return the JSON schema of a data part that answers a question."""
    match question.kind:
        case QuestionKind.CONFIRMATION:
            return _CONFIRMATION
        case QuestionKind.SELECTION:
            return {"enum": list(question.options)}
        case QuestionKind.DATA:
            return question.json_schema
        case QuestionKind.AUTH:
            return {"type": "string", "minLength": 1, "writeOnly": True}
        case QuestionKind.CLARIFICATION:
            return {"type": "string", "minLength": 1}


def _json(view: TaskView, question: Question, now: datetime) -> JsonValue:
    is_mine = question.is_for_owner
    return {
        **question_json(view, question, now),
        "contextId": view.context_id if is_mine else "",
        "kind": question.kind.value,
        "purpose": question.purpose,
        "options": list(question.options),
        "timeout": question.timeout,
        "answerBy": "message" if is_mine else "approval",
        "answerSchema": answer_schema(question),
        "expected": expected(question) if is_mine else "",
    }


def _token(lists: list[_List], number: int, token: str) -> str:
    if number == len(lists):
        return ""
    return page_token(json.dumps([*lists[number], token]).encode())


def _read_place(token: bytes, lists: list[_List]) -> tuple[int, str]:
    """Return the list at which a page begins, and the position in it."""
    agent_id, state, inner = json.loads(token)
    return lists.index((agent_id, state)), str(inner)
