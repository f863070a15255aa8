"""Who makes a call over HTTP, what it speaks, and whether it may do what it asks for."""

from a2a.compat.v0_3.extension_headers import LEGACY_HTTP_EXTENSION_HEADER
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import VersionNotSupportedError
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.requests import A2ARequest
from everloop.gateway.context import AGENT, CALLER, Caller, CallHeaders, caller_of_request, served_version
from everloop.gateway.operations.operation import Operation
from everloop.runtime.telemetry.logs import bind_owner

_SHOWN = 40
"""How many characters of a wrong version are repeated."""


async def recognise(request: HTTPConnection, access: AccessControl) -> Caller:
    """Return who asks, count the request as the owner's, and leave the caller in the request's scope.

    A header that comes twice is joined (RFC 9110 §5.3): nothing that a client puts before what its proxy adds
    passes for the proxy's word.

    Raises:
        TooManyHeadersError: there are more headers than we read.
        UnauthenticatedError: nobody whom we know.
        TooManyRequestsError: the owner asks too often.
        UnavailableNowError: a server that we have to ask does not answer.
    """
    headers = CallHeaders(request.headers.items())
    peer = request.client.host if request.client else ""
    caller = await access.authenticator.authenticate(headers, peer)
    request.scope[CALLER] = caller
    bind_owner(caller.owner)
    await access.limits.admit_request(caller.owner)
    return caller


def begin_call(
    request: A2ARequest, operation: Operation, version: str, called: tuple[str, str], subject: str
) -> ServerCallContext:
    """Return the context of a call that its caller may make; nothing of its parameters has been read.

    `version` is that of A2A which the call is of, `called` the system and the name that its span gets, and
    `subject` what errors call it.

    Raises:
        VersionNotSupportedError: the client says another version.
        ForbiddenError: the caller lacks the scope of the operation.
    """
    sent = sent_version(request)
    _check_version(sent, version, subject)
    request.name_operation(*called)
    caller = caller_of_request(request)
    operation.authorize(caller)
    extensions = request.headers.getlist(HTTP_EXTENSION_HEADER)
    if version == PROTOCOL_VERSION_0_3:
        extensions += request.headers.getlist(LEGACY_HTTP_EXTENSION_HEADER)
    context = ServerCallContext(user=caller, requested_extensions=get_requested_extensions(extensions))
    context.state = request.call_state  # the constructor would copy it
    context.state["headers"] = {**request.headers, VERSION_HEADER.lower(): sent}
    if request.agent_id:
        context.state[AGENT] = request.agent_id
    return context


def sent_version(request: Request) -> str:
    """Return the version that a client names, in a header or in the query; empty: none (A2A 1.0 §3.6.1)."""
    query = QueryParams(request.scope["query_string"])
    return request.headers.get(VERSION_HEADER) or query.get(VERSION_HEADER, "")


def _check_version(sent: str, needed: str, subject: str) -> None:
    """Refuse a call in a version that `subject`, an operation or an address, is not of.

    Patch numbers do not matter (§3.6); no version means 0.3.

    Raises:
        VersionNotSupportedError: the text says which version to send.
    """
    version = served_version(sent or PROTOCOL_VERSION_0_3)
    if version is None:
        raise VersionNotSupportedError(
            f"{VERSION_HEADER} is {sent[:_SHOWN]!r}; this server speaks 1.0 and 0.3: send one of these"
        )
    if version == needed:
        return
    if needed == PROTOCOL_VERSION_1_0:
        says = f"says {sent}" if sent else "is missing, which means 0.3"
        raise VersionNotSupportedError(
            f"{subject} is of A2A 1.0, but the header {VERSION_HEADER} {says}; "
            f"send the header {VERSION_HEADER}: 1.0"
        )
    raise VersionNotSupportedError(
        f"{subject} is of A2A 0.3, but {VERSION_HEADER} says {sent}; "
        f"send {VERSION_HEADER}: 0.3 or none, or use the operation of A2A 1.0"
    )
