"""How much the worker of each queue takes on at once: a number, or what the machine can do."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.worker import (
    FixedSizeSlotSupplier,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    ResourceBasedSlotConfig,
    ResourceBasedSlotSupplier,
    ResourceBasedTunerConfig,
    WorkerConfig,
)

from everloop.worker import WorkerSettings, build_workers
from tests.support.fakes.ports import TASK_WORK, FakePorts, ScriptedModel
from tests.workflows.conftest import unique_queue

MOST = {"": 200, "-model": 200, "-tools": 200, "-push": 100, "/gpu": 200}
"""How the name of a queue ends → calls at once."""


def _configs(client: Client, settings: WorkerSettings) -> dict[str, WorkerConfig]:
    """Return what the worker of each queue was told, by the end of the queue's name."""
    ports = FakePorts(ScriptedModel()).wired()
    workers = build_workers(client, ports, settings, [*TASK_WORK, "push", f"{settings.task_queue}/gpu"])
    configs = [worker.config(active_config=True) for worker in workers]
    return {config.get("task_queue", "").removeprefix(settings.task_queue): config for config in configs}


def _pollers(config: WorkerConfig) -> tuple[object, object]:
    return config.get("workflow_task_poller_behavior"), config.get("activity_task_poller_behavior")


async def test_slots_are_fixed_unless_a_target_is_set(client: Client) -> None:
    """So many calls at once as the settings say, or as fit a webhook; five open requests for work."""
    configs = _configs(client, WorkerSettings(task_queue=unique_queue()))
    tuners = {queue: config.get("tuner") for queue, config in configs.items()}
    slots = {queue: tuner and tuner._get_activity_task_slot_supplier() for queue, tuner in tuners.items()}
    assert slots == {queue: FixedSizeSlotSupplier(most) for queue, most in MOST.items()}
    five = PollerBehaviorSimpleMaximum(maximum=5)
    assert {_pollers(config) for config in configs.values()} == {(five, five)}


@pytest.mark.parametrize(
    ("targets", "aims"),
    [
        ({"target_cpu": 0.5}, ResourceBasedTunerConfig(target_memory_usage=0.8, target_cpu_usage=0.5)),
        ({"target_memory": 0.6}, ResourceBasedTunerConfig(target_memory_usage=0.6, target_cpu_usage=0.9)),
    ],
)
async def test_one_target_lets_the_machine_decide(
    client: Client, targets: Mapping[str, float], aims: ResourceBasedTunerConfig
) -> None:
    """From 10 slots to what would be fixed, and Temporal says how many requests for work are open."""
    configs = _configs(client, WorkerSettings.model_validate({"task_queue": unique_queue(), **targets}))
    at_once = timedelta(0)
    for queue, most in MOST.items():
        tuner = configs[queue].get("tuner")
        assert tuner
        calls, steps = ResourceBasedSlotConfig(10, most, at_once), ResourceBasedSlotConfig(10, 500, at_once)
        assert tuner._get_activity_task_slot_supplier() == ResourceBasedSlotSupplier(calls, aims)
        assert tuner._get_workflow_task_slot_supplier() == ResourceBasedSlotSupplier(steps, aims)
    scaled = PollerBehaviorAutoscaling(minimum=2, initial=5, maximum=50)
    assert {_pollers(config) for config in configs.values()} == {(scaled, scaled)}


@pytest.mark.parametrize(
    ("queue", "least", "most"), [("model", 4, 4), ("push", 10, 100), ("narrator", 10, 1000)]
)
def test_the_least_is_never_over_the_most(queue: str, least: int, most: int) -> None:
    """Fewer calls than 10 can be asked for; webhooks and narrators have numbers of their own."""
    settings = WorkerSettings(max_concurrent_activities=4, target_cpu=0.9)
    slots = settings.tuner(queue)._get_activity_task_slot_supplier()
    assert isinstance(slots, ResourceBasedSlotSupplier)
    assert (slots.slot_config.minimum_slots, slots.slot_config.maximum_slots) == (least, most)
