"""What operators need: the tasks of all owners, why some do not go on, and what helps; how the system fares.

    GET  /operator/tasks                  ?state= &agent= &owner= &stuck=true
    GET  /operator/tasks/{id}             one, with all that its workflow tells
    POST /operator/tasks/{id}/resume      let it go on: {}
    POST /operator/tasks/{id}/skip        end a call: {"callId": "…", "note": "…"}
    POST /operator/tasks/{id}/reset       go back to before the failure: {"to": "lastGood"}
    POST /operator/tasks/{id}/cancel      ask it to stop: {}
    POST /operator/tasks/{id}/approve     answer a question: {"questionId": "…", "approved": true, …}
    GET  /operator/system                 versions, queues, workers, health, counts

They take the scope admin. Where callers prove nothing, each is the operator of what belongs to nobody.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal
from uuid import uuid4

import structlog
from a2a.utils.errors import InvalidParamsError
from pydantic import Field, JsonValue
from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import ADMIN, AGENTS, is_bound_to_agents, may_use, require_scope
from everloop.gateway.context import Caller
from everloop.gateway.errors import TaskUnknownError
from everloop.gateway.extension.operator.actions import Actions, question_of
from everloop.gateway.extension.operator.overview import Overview, Seen, Wanted
from everloop.gateway.extension.operator.system import System
from everloop.gateway.extension.shell import MAX_NOTE, Body, Call, Extension, answer, name_of
from everloop.gateway.http.errors import ConflictError
from everloop.gateway.requests.messages import IDEMPOTENCY_KEY
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.steering import Signature
from everloop.workflows.contract.names import is_agent_id
from everloop.workflows.contract.questions import Approval
from everloop.workflows.contract.tasks import TaskState

_NO_AGENT = "-"
"""Stands for the agents of a caller who is bound to what is the id of none."""

_log = structlog.get_logger()

Act = Callable[[Seen, Signature], Awaitable[str]]


class _NothingBody(Body):
    expected: ClassVar[str] = "{}"


class _SkipBody(Body):
    expected: ClassVar[str] = f'{{"callId": "…", "note": "…"}}; the note has at most {MAX_NOTE} characters'

    call_id: str = ""
    note: str = Field(default="", max_length=MAX_NOTE)


class _ResetBody(Body):
    expected: ClassVar[str] = '{"to": "lastGood"}'

    to: Literal["lastGood"] = "lastGood"


class _ApproveBody(Body):
    expected: ClassVar[str] = (
        '{"questionId": "…", "approved": true, "note": "…", "value": …}; '
        f"the note has at most {MAX_NOTE} characters"
    )

    question_id: str
    approved: bool
    note: str = Field(default="", max_length=MAX_NOTE)
    value: JsonValue = None


class Operator:
    """Serves it. `is_open`: callers prove nothing."""

    def __init__(  # noqa: PLR0913 -- its parts, each by its name
        self,
        extension: Extension,
        *,
        overview: Overview,
        actions: Actions,
        system: System,
        reconciler: Reconciler,
        is_open: bool,
    ) -> None:
        self._extension = extension
        self._overview = overview
        self._actions = actions
        self._system = system
        self._reconciler = reconciler
        self._is_open = is_open

    @property
    def routes(self) -> list[Route]:
        """All addresses."""
        posts = {
            "resume": self._resume,
            "skip": self._skip,
            "reset": self._reset,
            "cancel": self._cancel,
            "approve": self._approve,
        }

        def route(path: str, **handlers: Callable[[Call], Awaitable[Response]]) -> Route:
            return self._extension.route(f"/operator{path}", authorize=self._authorize, **handlers)

        return [
            route("/tasks", GET=self._list),
            route("/tasks/{id}", GET=self._show),
            *(route(f"/tasks/{{id}}/{name}", POST=handler) for name, handler in posts.items()),
            route("/system", GET=self._show_system),
        ]

    def _authorize(self, caller: Caller) -> None:
        if not self._is_open:
            require_scope(caller, ADMIN)

    def _owner(self, call: Call) -> str:
        """Return whose tasks alone the caller may see, or asks for; empty: those of all."""
        return call.caller.owner if self._is_open else call.query("owner")

    # Reading.

    async def _list(self, call: Call) -> Response:
        page, only_stuck = call.page, call.query("stuck")
        if only_stuck not in {"", "true", "false"}:
            raise InvalidParamsError("stuck is neither true nor false")
        wanted = Wanted(
            state=_state(call.query("state")),
            agent=call.query("agent"),
            owner=self._owner(call),
            only_stuck=only_stuck == "true",
            agents=_agents_of(call.caller),
        )
        seen, token = await self._overview.page(wanted, page)
        if not self._is_open:
            _log.info("tasks of other owners listed", admin=name_of(call.caller), of=wanted.owner or "all")
        return answer({"tasks": [each.to_json() for each in seen], "nextPageToken": token})

    async def _show(self, call: Call) -> Response:
        return answer({"task": (await self._find(call)).to_json()})

    async def _show_system(self, call: Call) -> Response:
        owner = call.caller.owner if self._is_open else ""
        counts = await self._overview.counts(owner, _agents_of(call.caller))
        return answer({**await self._system.show(), "tasks": counts})

    async def _find(self, call: Call) -> Seen:
        """Return the task of the address.

        Raises:
            TaskUnknownError: there is none for this caller.
        """
        seen = await self._overview.find(call.id())
        is_foreign = self._is_open and seen.owner != call.caller.owner
        if is_foreign or not may_use(call.caller, seen.agent_id):
            raise TaskUnknownError(call.id())
        return seen

    # Acting.

    async def _resume(self, call: Call) -> Response:
        await call.body(_NothingBody)
        return await self._act(call, "resume", self._actions.resume)

    async def _skip(self, call: Call) -> Response:
        body = await call.body(_SkipBody)

        async def skip(seen: Seen, sign: Signature) -> str:
            return await self._actions.skip(seen, body.call_id, body.note, sign)

        return await self._act(call, "skip", skip)

    async def _reset(self, call: Call) -> Response:
        await call.body(_ResetBody)

        async def reset(seen: Seen, sign: Signature) -> str:
            done = await self._actions.reset(seen, sign)
            self._reconciler.check_soon(seen.task_id)  # clients read of it at once
            return done

        return await self._act(call, "reset", reset)

    async def _cancel(self, call: Call) -> Response:
        await call.body(_NothingBody)
        return await self._act(call, "cancel", self._actions.cancel)

    async def _approve(self, call: Call) -> Response:
        body = await call.body(_ApproveBody)

        async def approve(seen: Seen, sign: Signature) -> str:
            question = question_of(seen, body.question_id)
            if not (question.is_for_owner or self._is_open) and call.caller.owner == seen.owner:
                raise ConflictError("this question asks others than the owner; somebody else has to answer")
            given = Approval(
                call_id=body.question_id, approved=body.approved, note=body.note, value=body.value
            )
            return await self._actions.approve(seen, given, sign)

        return await self._act(call, "approve", approve)

    async def _act(self, call: Call, name: str, act: Act) -> Response:
        """Do something to the task of the address, and write down who did it."""
        seen = await self._find(call)
        sign = Signature(name_of(call.caller), _request_id(call, name))
        about = {
            "action": name,
            "task_id": seen.task_id,
            "agent_id": seen.agent_id,
            "owner": seen.owner,
            "operator": sign.by,
        }
        try:
            done = await act(seen, sign)
        except TaskUnknownError as error:
            _log.info("operator's action refused", **about)
            raise ConflictError("the task has ended meanwhile") from error
        except ConflictError:  # it may repeat a question, which is content
            _log.info("operator's action refused", **about)
            raise
        _log.info("operator acted on a task", **about, done=done)
        return answer({"task": (await self._find(call)).to_json(), "done": done})


def _request_id(call: Call, name: str) -> str:
    """Return what makes an action that is asked for again the same."""
    key = call.request.headers.get(IDEMPOTENCY_KEY, "")
    if not key:
        return str(uuid4())
    words = f"{call.caller.owner}\x1f{call.id()}\x1f{name}\x1f{key}"
    return hashlib.sha256(words.encode()).hexdigest()


def _state(text: str) -> TaskState | None:
    if not text:
        return None
    try:
        return TaskState(text)
    except ValueError:
        raise InvalidParamsError(f"state is none of {', '.join(TaskState)}") from None


def _agents_of(caller: Caller) -> tuple[str, ...]:
    """Return the agents that a caller is bound to; none: to no agent."""
    if not is_bound_to_agents(caller):
        return ()
    named = (scope.removeprefix(AGENTS) for scope in caller.scopes or () if scope.startswith(AGENTS))
    return tuple(sorted(agent_id for agent_id in named if is_agent_id(agent_id))) or (_NO_AGENT,)
