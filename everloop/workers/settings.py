"""Settings of a worker: queues, concurrency, build."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic_settings import NoDecode
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import (
    PollerBehavior,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    ResourceBasedSlotConfig,
    WorkerDeploymentConfig,
    WorkerTuner,
)

from everloop.runtime.environment import Settings
from everloop.workflows.contract import names
from everloop.workflows.contract.names import WORKER_QUEUES

LEAST_SLOTS = 10
"""Minimum concurrent calls and workflow steps, however busy the machine is: most only wait."""

MOST_STEPS = 500
"""Maximum concurrent workflow steps with a tuner."""

MAX_CONCURRENT_DELIVERIES = 100
"""Maximum concurrent push notifications of a worker; a webhook may take ten seconds."""

MAX_CONCURRENT_NARRATORS = 1000
"""Maximum concurrently narrated tasks of a worker; further ones are narrated later, or never."""

_MOST_CALLS = {
    names.PUSH_QUEUE: MAX_CONCURRENT_DELIVERIES,
    names.NARRATOR_QUEUE: MAX_CONCURRENT_NARRATORS,
}

Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_RATES = TypeAdapter(dict[str, Rate], config=ConfigDict(hide_input_in_errors=True))


class QueueNameError(Exception):
    """The name of a queue is a kind of work whose workers run more than models and tools."""


class WorkerSettings(Settings):
    """Settings of a worker."""

    task_queue: str = names.DEFAULT_TASK_QUEUE
    max_cached_workflows: int = Field(default=1000, ge=0)
    """Tasks cached between their steps. Others, and those that have waited for people for a minute, are
    replayed."""
    max_concurrent_activities: int = Field(default=200, ge=1)
    """Maximum concurrent calls of each queue."""
    target_cpu: Share | None = None
    """Share of the machine's or container's processor, from 0 to 1: above it fewer calls are accepted,
    down to 10. 0.9 if only the other one is set. Unset: no limit."""
    target_memory: Share | None = None
    """The same for memory. 0.8 if only the other one is set. Unset: no limit."""
    queue_rates: Annotated[dict[str, Rate], NoDecode] = {}
    """Calls a second of a queue, over all its workers, as JSON: `{"model": 50, "gpu": 0.5}`. For `model`
    and `tools` it needs `EVERLOOP_SPLIT_QUEUES`. Unset: no limit."""
    shutdown_grace: float = Field(default=30, ge=0)
    deployment: str = "everloop"
    """The Temporal worker deployment that builds belong to."""
    build_id: str = ""
    """The version of code and agents. Tasks end on the build they began on. Unset: every worker takes
    every task. See docs/operation/operation.md."""

    @field_validator("queue_rates", mode="before")
    @classmethod
    def _are_rates(cls, rates: object) -> object:
        if not isinstance(rates, str):
            return rates
        try:
            return _RATES.validate_json(rates)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = "".join(f"{word}: " for word in problem["loc"])
            raise ValueError(
                f"{place}{problem['msg']}; expected calls a second of each queue, as "
                'JSON such as {"model": 50, "gpu": 0.5}'
            ) from None

    def queue_named(self, queue: str) -> str:
        """Return the task queue of a kind of work, or of a queue's name."""
        is_kind = queue in names.WORKER_QUEUES
        return names.task_queue_of(queue, self.task_queue) if is_kind else queue

    def check_names(self, queues: Iterable[str]) -> None:
        """Reject names of queues that stand for a kind of work: their workers must serve all kinds.

        Raises:
            QueueNameError: names the queue and the remedy.
        """
        kinds = {self.queue_named(kind): kind for kind in names.WORKER_QUEUES}
        for queue in set(queues) - set(names.WORKER_QUEUES):
            if kind := kinds.get(queue):
                raise QueueNameError(
                    f"{queue!r} is the task queue of {kind} (EVERLOOP_TASK_QUEUE is {self.task_queue!r}): "
                    f"write --queues {kind}, and give agents and tools another task_queue"
                )

    def grace_of(self, queue: str) -> timedelta:
        """Return the grace of a queue's calls at SIGTERM. Narrators get none."""
        return timedelta(seconds=0 if queue == names.NARRATOR_QUEUE else self.shutdown_grace)

    @property
    def versioning(self) -> WorkerDeploymentConfig | None:
        """Temporal's versioning of this build; None without a build id."""
        if not self.build_id:
            return None
        return WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(self.deployment, self.build_id),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )

    @property
    def is_tuned(self) -> bool:
        """True if load decides about concurrency."""
        return self.target_cpu is not None or self.target_memory is not None

    @property
    def pollers(self) -> PollerBehavior:
        """Number of open polls; with a tuner Temporal decides."""
        if self.is_tuned:
            return PollerBehaviorAutoscaling(minimum=2, initial=5, maximum=50)
        return PollerBehaviorSimpleMaximum(maximum=5)

    def tuner(self, queue: str) -> WorkerTuner:
        """Return the limits of concurrent calls of a queue and of workflow steps."""
        most = _MOST_CALLS.get(queue, self.max_concurrent_activities)
        if not self.is_tuned:
            return WorkerTuner.create_fixed(activity_slots=most, local_activity_slots=most)
        at_once = timedelta(0)  # what fits is taken at once: a call mostly waits for somebody else
        calls = ResourceBasedSlotConfig(min(LEAST_SLOTS, most), most, at_once)
        return WorkerTuner.create_resource_based(
            target_memory_usage=self.target_memory or 0.8,
            target_cpu_usage=self.target_cpu or 0.9,
            workflow_config=ResourceBasedSlotConfig(LEAST_SLOTS, MOST_STEPS, at_once),
            activity_config=calls,
            local_activity_config=calls,
        )


# The arguments of a worker, and how `worker.py` reads it; `everloop worker` reads it by itself.

MOST_PROCESSES = 256


@dataclass(frozen=True)
class WorkerArguments:
    """Queues of a worker (kinds of work, or names) and its number of processes.

    `is_child`: a parent worker process has started this one, and logs for all.
    """

    queues: tuple[str, ...]
    processes: int
    is_child: bool = False


def parse_arguments(arguments: Sequence[str]) -> WorkerArguments:
    """Parse the command line; an error ends the process with a usage line (exit code 2)."""
    kinds = ", ".join(WORKER_QUEUES)
    parser = ArgumentParser(prog="worker.py", description="Work on tasks, or on a part of what they need.")
    parser.add_argument(
        "--queues",
        type=_queues,
        default=WORKER_QUEUES,
        metavar="NAME[,NAME...]",
        help=f"what to take on: {kinds} (default: all of these), or the task_queue of agents or tools",
    )
    parser.add_argument(
        "--processes", type=_count, default=1, metavar="N", help="how many processes; one a core is best"
    )
    parser.add_argument("--child", action="store_true", help=SUPPRESS)
    given = parser.parse_args(arguments)
    return WorkerArguments(given.queues, given.processes, given.child)


def read_queues(given: str) -> tuple[str, ...]:
    """Split a comma-separated list of names.

    Raises:
        ValueError: a name is empty.
    """
    queues = tuple(dict.fromkeys(queue.strip() for queue in given.split(",")))
    if not all(queues):
        raise ValueError(f"{given!r} has an empty name; give names separated by commas")
    return queues


def _queues(given: str) -> tuple[str, ...]:
    try:
        return read_queues(given)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _count(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= MOST_PROCESSES:
        raise ArgumentTypeError(f"{given!r} is not a number from 1 to {MOST_PROCESSES}")
    return int(given)
