"""The command line of a worker, and its queues and limits by settings."""

import pytest
from pydantic import ValidationError

from everloop.agents.agent import Agent
from everloop.agents.errors import AgentDefinitionError
from everloop.agents.tool import tool
from everloop.runtime.environment import explain
from everloop.workers.settings import QueueNameError, WorkerSettings, parse_arguments
from everloop.workflows.contract.names import WORKER_QUEUES


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--queues", "model,"], "'model,' has an empty name"),
        (["--processes", "0"], "'0' is not a number from 1 to 256"),
        (["--queue", "model", "extra"], "unrecognized arguments: extra"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the usage, and exit code 2."""
    with pytest.raises(SystemExit) as ended:
        parse_arguments(arguments)

    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(("queue", "named"), [("workflows", "q"), ("model", "q-model"), ("gpu", "gpu")])
def test_kinds_belong_to_one_everloop_and_names_are_as_they_are(queue: str, named: str) -> None:
    """Two deployments in one namespace share no kind of work, and may share a queue by name."""
    assert WorkerSettings(task_queue="q").queue_named(queue) == named


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EVERLOOP_TARGET_CPU", "0"),
        ("EVERLOOP_QUEUE_RATES", '{"model": 0}'),
        ("EVERLOOP_QUEUE_RATES", "model=5"),
    ],
)
def test_a_wrong_setting_is_refused(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares are over 0 and up to 1, rates are over 0, in JSON; the line names the wrong variable."""
    monkeypatch.setenv(variable, value)

    with pytest.raises(ValidationError) as refused:
        WorkerSettings()
    assert explain(refused.value).startswith(variable)


@pytest.mark.parametrize(("queue", "kind"), [("q", "workflows"), ("q-model", "model")])
def test_the_queue_of_a_kind_is_nobodys_own(queue: str, kind: str) -> None:
    """A worker that served it as a queue of tools would fail all other calls on it."""
    with pytest.raises(
        QueueNameError, match=rf"{queue!r} is the task queue of {kind} .*write --queues {kind}"
    ):
        WorkerSettings(task_queue="q").check_names(["gpu", queue])
    WorkerSettings(task_queue="model").check_names([*WORKER_QUEUES, "q-model"])


@pytest.mark.parametrize("name", ["", "a,b", "model", "x" * 201])
def test_queues_of_agents_and_tools_can_be_named_to_a_worker(name: str) -> None:
    """A name is not one of all agents, and can be used in `--queues`."""

    def search() -> str:
        """Search."""
        return ""

    with pytest.raises(AgentDefinitionError, match="tool 'search': task_queue is "):
        tool(task_queue=name)(search)
    with pytest.raises(AgentDefinitionError, match="agent 'a': task_queue is "):
        Agent(id="a", name="A", description="d", task_queue=name)
