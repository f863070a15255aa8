"""Calls of the addresses beside A2A: those of the HTTP extension, and downloads.

A handler takes an `HttpCall` and returns a response, usually by `answer`. It raises A2A errors, those of
`everloop.gateway.errors` and those of stores. Each becomes JSON in the form of REST of A2A 1.0.

    call_route(http, f"{HTTP_BASE}/contexts", GET=list_contexts)
    call_route(http, f"{HTTP_BASE}/contexts/{{id}}", GET=show_context, DELETE=delete_context)

Ids are percent-encoded, and one segment each, whatever their characters. GET takes the scope
tasks:read, all other methods tasks:write. `?owner=` names another owner, for whom GET and DELETE take
the scope admin instead.
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
from everloop.gateway.http.http_errors import refusal, violation
from everloop.gateway.http.requests import A2ARequest, HttpContext, HttpEndpoint
from everloop.gateway.requests.fields import read_token
from everloop.gateway.requests.incoming_messages import IDEMPOTENCY_KEY
from everloop.gateway.tasks.snapshots import held_by

MAX_PAGE = 100
USUAL_PAGE = 50

MAX_NOTE = 2000
"""Maximum characters of a note: of an answer or a skipped call, which the model reads, or of a schedule."""

_ESCAPED = re.compile("%(?=2[5Ff])")
"""Escapes that are decoded with the ids only: slashes, and those that would be decoded twice."""

_UNDIVIDED = "everloop.path"
"""Key of a request's scope: its path as `RawRoute` reads it."""

_log = structlog.get_logger()


class RequestBody(BaseModel):
    """Fields of a body, named in camelCase; strict, without unknown fields.

    `expected` is the description in the error about an invalid body.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, hide_input_in_errors=True
    )
    expected: ClassVar[str] = ""


_Body = TypeVar("_Body", bound=RequestBody)
_Place = TypeVar("_Place")


@dataclass(frozen=True)
class Page:
    """Requested page of a list."""

    size: int
    token: str

    def read_token(self, read: Callable[[bytes], _Place], first: _Place) -> _Place:
        """Return the position at which the page begins, as `read_token` does, or `first` without a token."""
        return read_token(self.token, read) if self.token else first


@dataclass(frozen=True)
class HttpCall:
    """Authorized call. `owner` is the owner of all objects that it can find: others do not exist.

    `held` is released after the response.
    """

    caller: Caller
    owner: str
    held: ExitStack
    request: A2ARequest

    def id(self, name: str = "id") -> str:
        """Return an id of the address."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        """Return a parameter of the query, empty if missing."""
        return self.request.query_params.get(name, "")

    @property
    def key(self) -> str:
        """The Idempotency-Key, empty if missing."""
        return self.request.headers.get(IDEMPOTENCY_KEY, "")

    @property
    def page(self) -> Page:
        """The page of a list that pageSize and pageToken select.

        Raises:
            InvalidParamsError: pageSize is not a number, or out of range.
        """
        text = self.query("pageSize") or str(USUAL_PAGE)
        if not (re.fullmatch(r"[0-9]{1,3}", text) and 0 < int(text) <= MAX_PAGE):
            raise InvalidParamsError(f"pageSize is no number from 1 to {MAX_PAGE}")
        return Page(int(text), self.query("pageToken"))

    async def body(self, kind: type[_Body]) -> _Body:
        """Return the body; an empty one counts as `{}`.

        Raises:
            A2AError: it is too large, too slow, not JSON, or does not match `kind`.
        """
        content: object = await self.request.json() if await self.request.body() else {}
        try:
            return kind.model_validate(content)
        except ValidationError as failure:
            send = f"; send {kind.expected}" if kind.expected else ""
            raise InvalidParamsError(f"{violation(failure, root='the body')}{send}") from None


Handler = Callable[[HttpCall], Awaitable[Response]]


def call_route(
    http: HttpContext, path: str, *, authorize: Callable[[Caller], object] | None = None, **handlers: Handler
) -> Route:
    """Return the route of an address, with its handlers by HTTP method.

    `authorize` replaces tasks:read and tasks:write; it raises ForbiddenError.
    """
    return RawRoute(path, _Served(http, path, handlers, authorize), methods=list(handlers))


class RawRoute(Route):
    """Route that is matched before slashes in ids are decoded: ids of sub-agents' tasks have some."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        match, child = super().matches({**scope, "path": _undivided(scope), "root_path": ""})
        if match is not Match.NONE:
            child["path_params"] = {name: unquote(part) for name, part in child["path_params"].items()}
        return match, child


def _undivided(scope: Scope) -> str:
    """Return the path, in which slashes of ids are still encoded.

    Starlette decodes them too, which makes them separators of segments. Decoded once for all routes: a
    caller without credentials chooses the amount to decode.
    """
    path: str | None = scope.get(_UNDIVIDED)
    if path is None:
        raw = bytes(scope["raw_path"]).decode("ascii", errors="replace")
        path = scope[_UNDIVIDED] = unquote(_ESCAPED.sub("%25", raw))
    return path


class _Served(HttpEndpoint):
    """Serves the calls of one address."""

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
            return await handler(HttpCall(request.caller, owner, held_by(request.call_state), request))
        except ValidationError as failure:
            # Of stored data: `HttpCall.body` has reported invalid input.
            raise to_a2a(failure) from None

    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        return refusal(error)

    def _owner(self, caller: Caller, request: A2ARequest) -> str:
        """Return the owner whose objects a caller may read or change by this call.

        Raises:
            ForbiddenError: names the missing scope.
            InvalidParamsError: the owner's name is invalid, or the call does not support other owners.
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
    """Return the name of a caller for people."""
    named = caller.subject and caller.subject != caller.owner
    return f"{caller.owner} ({caller.subject})" if named else caller.owner


def answer(content: Mapping[str, JsonValue], status: int = 200) -> Response:
    """Return JSON that must not be cached."""
    # In ASCII: models may write lone surrogates, which UTF-8 cannot encode.
    body = json.dumps(content, separators=(",", ":"))
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
