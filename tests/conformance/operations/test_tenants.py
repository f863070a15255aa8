"""Tenants: A2A 1.0 §4.4.6; here a tenant is the id of an agent."""

from typing import Any

from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import COMPLETES, VERSION, content, fresh, message
from tests.conformance.stack import Stack
from tests.support.wires.agent import Agent, refusal


async def _agent_id(stack: Stack) -> str:
    catalogue: list[dict[str, Any]] = (await stack.http.get("/agents")).json()
    return catalogue[0]["id"]


async def test_the_tenant_names_the_agent(agent: Agent, stack: Stack) -> None:
    """Every operation accepts the tenant of the agent, on every binding (§4.4.6)."""
    tenant = await _agent_id(stack)
    request = message(COMPLETES)
    request.tenant = tenant
    task = await agent.send(request)
    found: pb.Task = await agent.call("GetTask", pb.GetTaskRequest(tenant=tenant, id=task.id))
    assert found == task
    page = await agent.list(tenant=tenant, contextId=task.context_id)
    assert [one.id for one in page.tasks] == [task.id]


async def test_an_unknown_tenant_is_refused(agent: Agent) -> None:
    """The error names the field (§3.3.2)."""
    request = message(COMPLETES)
    request.tenant = fresh("nobody")
    refused = await refusal(agent.send(request))
    assert refused.reason == "INVALID_PARAMS"
    assert "tenant" in refused.message


async def test_the_tenant_may_stand_in_the_path(stack: Stack) -> None:
    """REST accepts it as the first segment of a path, too (the definition's additional bindings)."""
    tenant = await _agent_id(stack)
    body = {"message": content(COMPLETES)}
    sent = await stack.http.post(f"/{tenant}/message:send", json=body, headers=VERSION)
    assert sent.status_code == 200
    task = sent.json()["task"]
    found = await stack.http.get(f"/{tenant}/tasks/{task['id']}", headers=VERSION)
    assert found.json()["id"] == task["id"]
    refused = await stack.http.get(f"/nobody/tasks/{task['id']}", headers=VERSION)
    assert refused.status_code in {400, 404}
