"""The addresses of all bindings over HTTP, at the root and at each agent's own address.

A2A 1.0 §5.3 maps operations to methods and addresses. The agent of `/agents/{agent}/…` is found by the shell.
"""

from collections.abc import Mapping

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0
from starlette.routing import Route

from everloop.gateway.bindings.jsonrpc import JsonRpcBinding
from everloop.gateway.bindings.legacy import legacy_rest_calls
from everloop.gateway.bindings.rest import RestBinding, RestCall, rest_calls
from everloop.gateway.bindings.shell import Endpoint, HttpShell

_AGENT = "/agents/{agent}"


def binding_routes(handler: RequestHandler, shell: HttpShell) -> list[Route]:
    """Return the routes of JSON-RPC and HTTP+JSON, in both versions.

    Longer addresses come first, so that no tenant is taken for the first word of one.
    """
    jsonrpc = Endpoint(JsonRpcBinding(handler), shell)
    routes = [Route(path, jsonrpc, methods=["POST"]) for path in ("/", _AGENT, f"{_AGENT}/")]
    legacy, current = legacy_rest_calls(handler), rest_calls(handler)
    for prefix in (_AGENT, ""):
        routes += _rest_routes(prefix, legacy, PROTOCOL_VERSION_0_3, shell)
        routes += _rest_routes(prefix, current, PROTOCOL_VERSION_1_0, shell)
        routes += _rest_routes(f"{prefix}/{{tenant}}", current, PROTOCOL_VERSION_1_0, shell)
    return routes


def _rest_routes(
    prefix: str, addresses: Mapping[str, Mapping[str, RestCall]], version: str, shell: HttpShell
) -> list[Route]:
    return [
        Route(prefix + path, Endpoint(RestBinding(calls, version), shell), methods=list(calls))
        for path, calls in addresses.items()
    ]
