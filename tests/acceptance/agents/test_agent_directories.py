"""Agents in a directory: decisions of their own plugins, and tasks whose definition changes."""

from pathlib import Path

from a2a.types.a2a_pb2 import SendMessageRequest, Task

from tests.support.a2a_client import connected, request, response_of, send
from tests.support.rigs.deployment import Gateway, running_deployment
from tests.support.rigs.people import call, say
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI

CLERK = '''
from everloop import Agent, prompt, request_input, tool, tools

@tool
def stamp() -> str:
    """Stamp a paper."""
    return "{kind} stamp"

agent = Agent(
    id="{name}",
    name="Clerk",
    description="Stamps papers.",
    model="{kind} model",
    plugins=[prompt("{kind} prompt"), request_input(), tools(stamp)],
)
'''


async def test_definitions_change_while_tasks_wait(model: ScriptedOpenAI, tmp_path: Path) -> None:
    """A task ends with the definition that it began with if that is still served beside the new one.

    If it is gone, the task goes on with the prompts and tools of the current one, and with the values that it
    has pinned, such as its model. New tasks begin with the current one.
    """
    agents = tmp_path / "agents"
    agents.mkdir()
    _define(agents, "kept", "first")
    _define(agents, "gone", "first")
    asks = Reply([call("request_input", {"question": "Now?"})])
    stamps = [Reply([call("stamp", {})]), Reply(["Stamped."])]
    model.script = [asks, asks, *stamps, *stamps, *stamps]
    async with running_deployment(tmp_path, model.base_url, agents=str(agents)) as everloop:
        worker = await everloop.add_worker()
        gateway = await everloop.add_gateway()
        parked = {name: await _send(gateway, name, request("Stamp it.")) for name in ("kept", "gone")}
        worker.kill()

        (agents / "kept.py").rename(agents / "kept_1.py")
        _define(agents, "kept", "second")
        _define(agents, "gone", "second")
        await everloop.add_worker()
        gateway = await everloop.add_gateway()
        tasks = [await _send(gateway, name, say(task.id, "Yes.")) for name, task in parked.items()]
        tasks.append(await _send(gateway, "kept", request("Stamp it.")))

    assert [response_of(task) for task in tasks] == ["Stamped."] * 3
    kept, gone, new = (_served(model.requests[number]) for number in (3, 5, 7))
    assert kept == ["first model", "first prompt", "first stamp"]
    assert gone == ["first model", "second prompt", "second stamp"]
    assert new == ["second model", "second prompt", "second stamp"]


def _define(directory: Path, name: str, kind: str) -> None:
    (directory / f"{name}.py").write_text(CLERK.format(name=name, kind=kind), "utf-8")


async def _send(gateway: Gateway, agent_id: str, message: SendMessageRequest) -> Task:
    async with connected(f"{gateway.url}/agents/{agent_id}", streaming=False) as client:
        return await send(client, message)


def _served(received: ReceivedRequest) -> list[object]:
    """Return the model, the prompt and the tool output that a task got from its agent's definition."""
    return [received.body["model"], received.conversation[0]["content"], received.tool_results[-1]]
