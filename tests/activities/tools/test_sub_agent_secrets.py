"""Secrets of sub-agents: clients bring them to their own task, and each agent reads its own only."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from pydantic import JsonValue
from temporalio.testing import ActivityEnvironment

from everloop.activities.publish import ViewPublisher
from everloop.agents.questions import AuthRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.calls import PublishInput
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.questions import WITHHELD, read_answer
from everloop.workflows.contract.tasks import TaskState
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.memory.secrets import MemorySecrets
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.tool_rig import ToolRig


@tool
async def login(context: ToolContext) -> JsonValue:
    """Say how long the token is."""
    token = await context.secret("token")
    if token is None:
        raise AuthRequired("Your token?", "token")
    return len(str(token))


def _bench(secrets: MemorySecrets, task_id: str) -> ToolRig:
    rig = ToolRig(login, secrets=secrets)
    rig.task_id = task_id
    return rig


async def _answered(secrets: MemorySecrets, task_id: str, token: str) -> str:
    """Let a task ask for its token, and its client bring one to the root task; return the result."""
    rig = _bench(secrets, task_id)
    question = await rig.ask(rig.call("login"))
    await secrets.put(task_id.split("/", maxsplit=1)[0], task_id, token)
    withheld = UserMessage(message_id=task_id, parts=(TextPart(text="…"),), metadata={WITHHELD: True})
    return (await rig.run(rig.call("login", "{}", read_answer(question, withheld)))).content


async def test_each_agent_of_a_task_has_its_own_secrets() -> None:
    """Under the same name; each has to ask for its own."""
    secrets, root = MemorySecrets(), str(uuid4())
    tasks = [root, f"{root}/c1", f"{root}/c1/c2", f"{root}/c2"]
    results = [await _answered(secrets, task_id, "x" * length) for length, task_id in enumerate(tasks, 10)]
    again = [_bench(secrets, task_id) for task_id in tasks]
    assert results == ["10", "11", "12", "13"]
    assert [(await rig.run(rig.call("login"))).content for rig in again] == results


@pytest.mark.parametrize("ends", ["child", "root"])
async def test_secrets_are_forgotten_when_the_clients_task_ends(ends: str) -> None:
    """All of them; the end of a sub-agent's task forgets none."""
    secrets, root = MemorySecrets(), str(uuid4())
    tasks = [root, f"{root}/c1", f"{root}/c2"]
    for task_id in tasks:
        await _answered(secrets, task_id, "x" * 10)
    views = MemoryTaskViews()
    ending = _bench(secrets, root if ends == "root" else f"{root}/c1").task
    end = StatusChanged(version=1, state=TaskState.COMPLETED, at=datetime.now(UTC))
    await ActivityEnvironment().run(
        ViewPublisher(views, secrets, MemoryArtifacts(views)).publish,
        PublishInput(task=ending, events=(end,)),
    )
    rigs = [_bench(secrets, task_id) for task_id in tasks]
    replies = [await rig.attempt_call(rig.call("login", call_id="2")) for rig in rigs]
    assert [reply.role for reply in replies] == ["question" if ends == "root" else "tool"] * 3
