"""Whose things a request is about."""

from a2a.server.context import ServerCallContext
from starlette.requests import HTTPConnection

ANONYMOUS = "anonymous"
"""The owner of tasks and artifacts whose client did not authenticate."""


def owner_of(context: ServerCallContext) -> str:
    """Return whose tasks this call may see."""
    return context.user.user_name if context.user.is_authenticated else ANONYMOUS


def owner_of_request(request: HTTPConnection) -> str:
    """Return whose artifacts this request may see: the same owner's as an A2A call with its headers."""
    is_authenticated = "user" in request.scope and request.user.is_authenticated
    return request.user.display_name if is_authenticated else ANONYMOUS
