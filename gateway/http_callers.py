"""Who makes an HTTP request, whatever it is for."""

from starlette.requests import HTTPConnection

from everloop.gateway.call_headers import CallHeaders
from everloop.gateway.callers import CALLER, Caller
from everloop.gateway.guards import Guards
from everloop.runtime.telemetry.logs import bind_owner


async def recognise(request: HTTPConnection, guards: Guards) -> Caller:
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
    caller = await guards.authenticator.authenticate(headers, peer)
    request.scope[CALLER] = caller
    bind_owner(caller.owner)
    await guards.limits.admit_request(caller.owner)
    return caller
