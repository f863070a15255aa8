"""What tools learn of who started their task."""

from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.tasks import Identity
from tests.support.rigs.tool_rig import ToolRig


@tool
async def who(context: ToolContext) -> str:
    """Say who started the task."""
    return f"{context.owner}/{context.auth.scheme}/{context.auth.subject}/{context.auth.claims}"


async def test_a_tool_knows_the_caller() -> None:
    """The owner, how the caller was recognised, and the claims that settings let through."""
    rig = ToolRig(who)
    identity = Identity(scheme="bearer", subject="ann", claims={"tenant": "blue"})
    call = rig.call("who").model_copy(update={"identity": identity})
    assert (await rig.run(call)).content == "owner/bearer/ann/{'tenant': 'blue'}"


async def test_nobody_is_known_of_an_anonymous_caller() -> None:
    """Its tasks have an owner, and that is all."""
    rig = ToolRig(who)
    assert (await rig.run(rig.call("who"))).content == "owner///{}"
