"""Log lines of a worker's start on queues that it does not serve, and on unused rates."""

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from everloop.agents.agent import Agent
from everloop.agents.registry import AgentRegistry
from everloop.workers.activity_queues import report_queues
from everloop.workers.settings import WorkerSettings
from everloop.workflows.contract.names import WORKER_QUEUES

REST = "other workers have to serve these queues: see --queues"
SPLIT = "takes calls only of tasks begun with EVERLOOP_SPLIT_QUEUES=true"


def _said(
    queues: Sequence[str], rates: dict[str, float] | None = None, *, agents_queue: str | None = None
) -> list[tuple[str, str, list[str]]]:
    """Return level, event and queues of each line."""
    agents = AgentRegistry([Agent(id="a", name="A", description="d", task_queue=agents_queue)])
    with capture_logs() as logs:
        report_queues(agents, queues, WorkerSettings(queue_rates=rates or {}))
    return [
        (
            line["log_level"],
            line["event"],
            line["queues"] + [f"split {kind}" for kind in line.get("with_split_queues", [])],
        )
        for line in logs
    ]


def test_a_worker_of_everything_has_nothing_to_say() -> None:
    """All queues in agents are served as well."""
    assert _said([*WORKER_QUEUES, "gpu"], {"push": 5, "gpu": 0.5}, agents_queue="gpu") == []


@pytest.mark.parametrize(
    ("queues", "lines"),
    [
        (["workflows", "model", "tools"], [(REST, ["push", "narrator"])]),
        (["model"], [(REST, ["workflows", "push", "narrator", "split tools"]), (SPLIT, ["model"])]),
        (["push"], [(REST, ["workflows", "narrator", "split model", "split tools"])]),
    ],
)
def test_a_worker_of_some_kinds_says_what_others_have_to_serve(
    queues: list[str], lines: list[tuple[str, list[str]]]
) -> None:
    """And that it may get no calls of models and tools; with workers for the others, nothing is wrong."""
    assert _said(queues) == [("info", event, named) for event, named in lines]


def test_a_queue_by_name_is_missing_or_needless() -> None:
    """A worker of all kinds warns of missing ones; an unused name may be misspelled."""
    missing = "agents name task queues that this worker does not serve: see --queues"
    unused = "no agent names these task queues: see --queues"

    assert _said(WORKER_QUEUES, agents_queue="gpu") == [("warning", missing, ["gpu"])]
    assert _said(["workflows", "model", "tools", "push"], agents_queue="gpu") == [
        ("info", REST, ["narrator", "gpu"])
    ]
    assert _said([*WORKER_QUEUES, "gup"]) == [("warning", unused, ["gup"])]
