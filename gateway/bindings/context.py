"""The context of a call that comes over HTTP, and the version of A2A that it speaks."""

from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import VersionNotSupportedError
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.requests import A2ARequest
from everloop.gateway.context import AGENT, CALLER, Caller, CallHeaders, caller_of_request, served_version
from everloop.runtime.telemetry.logs import bind_owner

_SHOWN = 40
"""How many characters of a wrong version are repeated."""


class CallContexts(ServerCallContextBuilder):
    """Builds contexts whose state the request keeps, so that its binding reads what the handler notes."""

    def build(self, request: Request) -> ServerCallContext:
        headers = dict(request.headers)
        headers[VERSION_HEADER.lower()] = sent_version(request)
        context = ServerCallContext(
            user=caller_of_request(request),
            requested_extensions=get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER)),
        )
        if isinstance(request, A2ARequest):
            context.state = request.call_state  # the constructor would copy it
        context.state["headers"] = headers
        if agent_id := request.path_params.get("agent"):
            context.state[AGENT] = agent_id
        return context


def sent_version(request: Request) -> str:
    """Return the version that a client names, in a header or in the query; empty: none (A2A 1.0 §3.6.1)."""
    query = QueryParams(request.scope["query_string"])
    return request.headers.get(VERSION_HEADER) or query.get(VERSION_HEADER, "")


def check_version(request: Request, needed: str, subject: str) -> None:
    """Refuse a call in a version that `subject`, an operation or an address, is not of.

    Patch numbers do not matter (§3.6); no version means 0.3.

    Raises:
        VersionNotSupportedError: the text says which version to send.
    """
    sent = sent_version(request)
    version = served_version(sent or PROTOCOL_VERSION_0_3)
    if version is None:
        raise VersionNotSupportedError(
            f"{VERSION_HEADER} is {sent[:_SHOWN]!r}; this server speaks 1.0 and 0.3: send one of these"
        )
    if version == needed:
        return
    if needed == PROTOCOL_VERSION_1_0:
        told = f"says {sent}" if sent else "is missing, which means 0.3"
        raise VersionNotSupportedError(
            f"{subject} is of A2A 1.0, but the header {VERSION_HEADER} {told}; "
            f"send the header {VERSION_HEADER}: 1.0"
        )
    raise VersionNotSupportedError(
        f"{subject} is of A2A 0.3, but {VERSION_HEADER} says {sent}; "
        f"send {VERSION_HEADER}: 0.3 or none, or use the operation of A2A 1.0"
    )


# Who makes an HTTP request, whatever it is for.


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
