"""The form of errors: A2A 1.0 §3.3.2, §5.4, §9.5, §10.6, §11.6."""

from collections.abc import Awaitable, Callable

import pytest

from tests.conformance.messages import COMPLETES, all_of, fresh, message
from tests.support.wires.agent import Agent, refusal
from tests.support.wires.wires import GRPC, JSONRPC, REST, Refusal

CODES: dict[str, dict[str, int | str]] = {
    "TASK_NOT_FOUND": {JSONRPC: -32001, REST: 404, GRPC: "NOT_FOUND"},
    "TASK_NOT_CANCELABLE": {JSONRPC: -32002, REST: 400, GRPC: "FAILED_PRECONDITION"},
    "UNSUPPORTED_OPERATION": {JSONRPC: -32004, REST: 400, GRPC: "FAILED_PRECONDITION"},
    "CONTENT_TYPE_NOT_SUPPORTED": {JSONRPC: -32005, REST: 400, GRPC: "INVALID_ARGUMENT"},
    "VERSION_NOT_SUPPORTED": {JSONRPC: -32009, REST: 400, GRPC: "FAILED_PRECONDITION"},
    "INVALID_PARAMS": {JSONRPC: -32602, REST: 400, GRPC: "INVALID_ARGUMENT"},
}
"""The table of §5.4, and the codes that each binding has for invalid parameters."""


async def _task_not_found(agent: Agent) -> object:
    return await agent.get(fresh("task"))


async def _task_not_cancelable(agent: Agent) -> object:
    ended = await agent.send(message(COMPLETES))
    return await agent.cancel(ended.id)


async def _unsupported_operation(agent: Agent) -> object:
    ended = await agent.send(message(COMPLETES))
    return await agent.send(message(COMPLETES, taskId=ended.id))


async def _unsupported_stream(agent: Agent) -> object:
    ended = await agent.send(message(COMPLETES))
    return await all_of(agent.subscribe(ended.id))


async def _content_type_not_supported(agent: Agent) -> object:
    return await agent.send(message(COMPLETES, configuration={"acceptedOutputModes": ["video/x-none"]}))


async def _invalid_params(agent: Agent) -> object:
    return await agent.list(pageSize=1000)


PROVOKED: dict[str, Callable[[Agent], Awaitable[object]]] = {
    "TASK_NOT_FOUND": _task_not_found,
    "TASK_NOT_CANCELABLE": _task_not_cancelable,
    "UNSUPPORTED_OPERATION": _unsupported_operation,
    "CONTENT_TYPE_NOT_SUPPORTED": _content_type_not_supported,
    "INVALID_PARAMS": _invalid_params,
}


@pytest.mark.parametrize("reason", PROVOKED)
async def test_each_error_has_its_code_on_each_binding(each_agent: Agent, reason: str) -> None:
    """The same failure is the same error everywhere, in the binding's own code (§5.1, §5.4).

    An ErrorInfo of the protocol's domain is there; details name their types (§9.5, §10.6, §11.6). The message
    is for people, and shows no internals (§3.3.2).
    """
    refused = await refusal(PROVOKED[reason](each_agent))
    assert (refused.reason, refused.code) == (reason, CODES[reason][each_agent.binding])
    _check_http(each_agent, refused)
    assert refused.error_info["domain"] == "a2a-protocol.org"
    assert all(detail["@type"].startswith("type.googleapis.com/") for detail in refused.details)
    assert len(refused.message) > 10
    assert not any(word in refused.message for word in ("Traceback", "Error(", "redis", "temporal"))


async def test_a_stream_that_is_refused_is_an_ordinary_error(each_agent: Agent) -> None:
    """A refusal before the first event has the same code as without streaming (§5.4)."""
    refused = await refusal(_unsupported_stream(each_agent))
    assert refused.code == CODES["UNSUPPORTED_OPERATION"][each_agent.binding]
    _check_http(each_agent, refused)


def _check_http(agent: Agent, refused: Refusal) -> None:
    """JSON-RPC has its errors in the body of a 200; REST in the status, too."""
    expected = {JSONRPC: 200, REST: refused.code, GRPC: None}[agent.binding]
    assert refused.http_status == expected
