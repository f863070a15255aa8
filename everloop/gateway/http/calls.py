"""What every call goes through of what is served beside A2A: of the HTTP extension, and of downloads.

A handler takes a `Call` and returns a response, most often by `answer`. It raises A2A errors, those of
`everloop.gateway.errors` and those of stores; each becomes JSON as REST of A2A 1.0 has it.

    call_route(http, f"{HTTP_BASE}/contexts", GET=list_contexts)
    call_route(http, f"{HTTP_BASE}/contexts/{{id}}", GET=show_context, DELETE=delete_context)

Ids are percent-encoded, and one segment each, whatever they hold. GET takes the scope tasks:read, everything
else tasks:write. `?owner=` names somebody else, for whom GET and DELETE take the scope admin in its place.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar, TypeVar
from urllib.parse import unquote

import structlog
from a2a.utils.errors import A2AError, InvalidParamsError
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from everloop.gateway.auth.scopes import ADMIN, READ, WRITE, check_scope, require_scope
from everloop.gateway.context import Caller, problem_of_owner
from everloop.gateway.errors import to_a2a
from everloop.gateway.http.errors import refusal, violation
from everloop.gateway.http.requests import A2ARequest, HttpContext, HttpEndpoint
from everloop.gateway.requests.fields import read_token
from everloop.gateway.requests.messages import IDEMPOTENCY_KEY
from everloop.gateway.tasks.snapshots import held_by

MAX_PAGE = 100
USUAL_PAGE = 50

MAX_NOTE = 2000
"""Characters of what somebody adds: to an answer or a skipped call, which the model reads; to a schedule."""

_KEPT = re.compile("%(?=2[5Ff])")
"""What is decoded with the ids alone: slashes, and what would be decoded twice."""

_UNDIVIDED = "everloop.path"
"""Where the scope of a request has its path as `RawRoute` reads it."""

_log = structlog.get_logger()


class Body(BaseModel):
    """What a body holds, named in camelCase; strict, and without fields that nobody knows.

    `expected` is shown to whoever sends something else.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, hide_input_in_errors=True
    )
    expected: ClassVar[str] = ""


_Body = TypeVar("_Body", bound=Body)
_Place = TypeVar("_Place")


@dataclass(frozen=True)
class Page:
    """Which part of a list is asked for."""

    size: int
    token: str

    def read_token(self, read: Callable[[bytes], _Place], first: _Place) -> _Place:
        """Return the place where the page begins, as `read_token` does, or `first` without a token."""
        return read_token(self.token, read) if self.token else first


@dataclass(frozen=True)
class Call:
    """A call by somebody who may make it. `owner` is whose things it is about: others' do not exist.

    `held` is let go of when the answer is out.
    """

    caller: Caller
    owner: str
    held: ExitStack
    request: A2ARequest

    def id(self, name: str = "id") -> str:
        """Return an id of the address."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        """Return a parameter of the query, empty if it is not there."""
        return self.request.query_params.get(name, "")

    @property
    def key(self) -> str:
        """The Idempotency-Key, empty if there is none."""
        return self.request.headers.get(IDEMPOTENCY_KEY, "")

    @property
    def page(self) -> Page:
        """The part of a list that pageSize and pageToken ask for.

        Raises:
            InvalidParamsError: pageSize is no number that there is.
        """
        text = self.query("pageSize") or str(USUAL_PAGE)
        if not (re.fullmatch(r"[0-9]{1,3}", text) and 0 < int(text) <= MAX_PAGE):
            raise InvalidParamsError(f"pageSize is no number from 1 to {MAX_PAGE}")
        return Page(int(text), self.query("pageToken"))

    async def body(self, kind: type[_Body]) -> _Body:
        """Return the body; an empty one counts as `{}`.

        Raises:
            A2AError: it is too large, too slow, no JSON, or something else than `kind`.
        """
        content: object = await self.request.json() if await self.request.body() else {}
        try:
            return kind.model_validate(content)
        except ValidationError as failure:
            send = f"; send {kind.expected}" if kind.expected else ""
            raise InvalidParamsError(f"{violation(failure, whole='the body')}{send}") from None


Handler = Callable[[Call], Awaitable[Response]]


def call_route(
    http: HttpContext, path: str, *, authorize: Callable[[Caller], object] | None = None, **handlers: Handler
) -> Route:
    """Return the route of an address: its handlers by their methods of HTTP.

    `authorize` takes the place of tasks:read and tasks:write; it raises ForbiddenError.
    """
    return RawRoute(path, _Served(http, path, handlers, authorize), methods=list(handlers))


class RawRoute(Route):
    """A route that is matched before slashes in ids are decoded: those of sub-agents' tasks have some."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        match, child = super().matches({**scope, "path": _undivided(scope), "root_path": ""})
        if match is not Match.NONE:
            child["path_params"] = {name: unquote(part) for name, part in child["path_params"].items()}
        return match, child


def _undivided(scope: Scope) -> str:
    """Return the path, in which slashes of ids are still encoded.

    Starlette decodes them too, which makes them slashes between segments. Decoded once for all routes: a
    caller without credentials chooses how much there is to decode.
    """
    path: str | None = scope.get(_UNDIVIDED)
    if path is None:
        raw = bytes(scope["raw_path"]).decode("ascii", errors="replace")
        path = scope[_UNDIVIDED] = unquote(_KEPT.sub("%25", raw))
    return path


class _Served(HttpEndpoint):
    """Answers the calls of one address."""

    def __init__(
        self,
        http: HttpContext,
        path: str,
        handlers: Mapping[str, Handler],
        authorize: Callable[[Caller], object] | None,
    ) -> None:
        super().__init__(http)
        self._path = path
        self._handlers = handlers
        self._authorize = authorize

    def name(self, scope: Scope) -> str:
        return f"{scope['method']} {self._path}"

    async def respond(self, request: A2ARequest) -> Response:
        handler = self._handlers["GET" if request.method == "HEAD" else request.method]
        owner = self._owner(request.caller, request)
        try:
            return await handler(Call(request.caller, owner, held_by(request.call_state), request))
        except ValidationError as failure:
            # Of what we keep: what was sent and does not fit, `Call.body` has told of.
            raise to_a2a(failure) from None

    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        return refusal(error)

    def _owner(self, caller: Caller, request: A2ARequest) -> str:
        """Return whose things a caller may read or change by this call.

        Raises:
            ForbiddenError: it names the scope that is missing.
            InvalidParamsError: nobody can be called that, or this cannot be done for others.
        """
        is_reading = request.method in {"GET", "HEAD"}
        owner = request.query_params.get("owner", caller.owner)
        if self._authorize:
            self._authorize(caller)
        elif owner == caller.owner:
            check_scope(caller, READ if is_reading else WRITE)
        if owner == caller.owner:
            return owner
        require_scope(caller, ADMIN)
        if problem := problem_of_owner(owner):
            raise InvalidParamsError(f"owner is nobody's name: {problem}")
        if not (is_reading or request.method == "DELETE"):
            raise InvalidParamsError(f"owner goes with GET and DELETE, not with {request.method}")
        _log.info(
            "called for another owner",
            method=request.method,
            path=self._path,
            ids=dict(request.path_params),
            for_owner=owner,
            admin=name_of(caller),
        )
        return owner


def name_of(caller: Caller) -> str:
    """Return who calls, as people read it."""
    named = caller.subject and caller.subject != caller.owner
    return f"{caller.owner} ({caller.subject})" if named else caller.owner


def answer(content: Mapping[str, JsonValue], status: int = 200) -> Response:
    """Return JSON that nobody keeps."""
    # In ASCII: what models write may have halves of characters, which UTF-8 cannot hold.
    body = json.dumps(content, separators=(",", ":"))
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
