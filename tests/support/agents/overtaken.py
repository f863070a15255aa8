"""Agents whose attempts are overtaken, each at the kind of write in its id."""

from datetime import timedelta

from everloop.agents.agent import Agent
from everloop.agents.limits import Compaction, Memory
from everloop.agents.plugins import Plugin, narrator, prompt, tools
from everloop.agents.question_exceptions import AuthRequired, InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from tests.support.agents.marks import until_open

NARRATOR = "narrator"
"""The model that narrates."""

_NONE = Compaction()
_LONG = timedelta(minutes=5)


@tool
def note() -> str:
    """Note something."""
    return "noted"


@tool(idempotent=True, timeout=_LONG)
async def report(context: ToolContext) -> str:
    """Say how far it is."""
    await context.progress("half way")
    return "reported"


@tool(idempotent=True, timeout=_LONG)
async def wait(gate: str) -> str:
    """Wait for a gate file."""
    await until_open(gate)
    return "waited"


@tool(idempotent=True)
async def unlock(context: ToolContext) -> str:
    """Ask for a PIN, again if it is an old one, and then for a confirmation."""
    pin = await context.secret("pin")
    if not isinstance(pin, str) or pin.startswith("old"):
        raise AuthRequired("Which PIN?", "pin")
    if len(context.answers) < 3:  # the two PINs
        raise InputRequired("Shall I go on?", "confirmation")
    return "unlocked"


def _agent(
    name: str, *plugins: Plugin, memory: Memory | None = None, compaction: Compaction = _NONE
) -> Agent:
    ours = [prompt("Follow the script."), tools(note, report, wait, unlock), *plugins]
    return Agent(
        id=name, name=name, description="", model=name, plugins=ours, memory=memory, compaction=compaction
    )


agents = [
    _agent("ends"),
    _agent("reports"),
    _agent("asks"),
    _agent("narrates", narrator(interval=1, model=NARRATOR)),
    _agent("pushes"),
    _agent("remembers", memory=Memory()),
    _agent("recalls", memory=Memory()),
    _agent("compacts", compaction=Compaction(prompt_tokens=1)),
]
