"""What tools learn of who started their task."""

from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.tasks import Identity
from tests.support.rigs.tool_rig import ToolBench


@tool
async def who(context: ToolContext) -> str:
    """Say who started the task."""
    return f"{context.owner}/{context.auth.scheme}/{context.auth.subject}/{context.auth.claims}"


async def test_a_tool_knows_the_caller() -> None:
    """The owner, how the caller was recognised, and the claims that settings let through."""
    bench = ToolBench(who)
    identity = Identity(scheme="bearer", subject="ann", claims={"tenant": "blue"})
    call = bench.call("who").model_copy(update={"identity": identity})

    assert (await bench.run(call)).content == "owner/bearer/ann/{'tenant': 'blue'}"


async def test_nobody_is_known_of_an_anonymous_caller() -> None:
    """Its tasks have an owner, and that is all."""
    bench = ToolBench(who)

    assert (await bench.run(bench.call("who"))).content == "owner///{}"
