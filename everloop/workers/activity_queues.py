"""The activities of a worker on each queue."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from everloop.agents.registry import AgentRegistry
from everloop.workers.settings import WorkerSettings
from everloop.workflows.contract import names
from everloop.workflows.contract.deletion_payloads import DeletionPort
from everloop.workflows.contract.housekeeping_payloads import HousekeepingPort
from everloop.workflows.contract.names import MODEL_QUEUE, TOOLS_QUEUE, WORKER_QUEUES, WORKFLOWS_QUEUE
from everloop.workflows.contract.ports import (
    AgentPort,
    ContextPort,
    ModelPort,
    NarratorPort,
    PublishPort,
    PushPort,
    SchedulePort,
    ToolPort,
    TranscriptPort,
)


@dataclass(frozen=True)
class WorkerPorts:
    """One implementation per port; None turns the port off."""

    model: ModelPort
    tools: ToolPort
    transcript: TranscriptPort
    publish: PublishPort
    agents: AgentPort
    context: ContextPort
    push: PushPort | None = None
    schedules: SchedulePort | None = None
    narrator: NarratorPort | None = None
    housekeeping: HousekeepingPort | None = None
    deletion: DeletionPort | None = None


def calls_of(queue: str, ports: WorkerPorts) -> list[Callable[..., object]]:
    """Return the activities of a queue. That of workflows has all, for tasks of earlier settings."""
    model = [ports.model.call_model, ports.model.compact_context, ports.context.compact_conversation]
    plugins = [ports.agents.prepare_task, ports.agents.before_request, ports.agents.after_completion]
    tools = [ports.tools.run_tool, *plugins]
    short = [
        ports.tools.store_result,
        ports.transcript.store_transcript,
        ports.publish.publish,
        ports.agents.load_agent,
        ports.context.load_context,
        ports.context.save_context,
    ]
    housekeeping = [ports.housekeeping.clean] if ports.housekeeping else []
    deletion = [ports.deletion.remove] if ports.deletion else []
    schedules = [ports.schedules.admit, ports.schedules.attach] if ports.schedules else []
    calls: dict[str, list[Callable[..., object]]] = {
        names.WORKFLOWS_QUEUE: [*short, *tools, *model, *housekeeping, *deletion, *schedules],
        names.MODEL_QUEUE: [*model],
        names.TOOLS_QUEUE: [*tools],
        names.PUSH_QUEUE: [ports.push.deliver_push] if ports.push else [],
        names.NARRATOR_QUEUE: [ports.narrator.narrate] if ports.narrator else [],
    }
    return calls.get(queue, [*model, *tools])


# Warnings at the start of a worker: queues that others must serve, and settings of unused queues.

SPLIT_KINDS = (MODEL_QUEUE, TOOLS_QUEUE)
"""Kinds of work on the queue of workflows, unless the task began with EVERLOOP_SPLIT_QUEUES."""

_log = structlog.get_logger()


def queues_named_by(agents: AgentRegistry) -> set[str]:
    """Return the queues that agents and tools name."""
    return {queue for agent in agents for queue in agent.task_queues}


def report_queues(agents: AgentRegistry, queues: Sequence[str], settings: WorkerSettings) -> None:
    """Log queues that may be unserved; a correct deployment of several workers logs no warning.

    `queues`: kinds or names that this worker serves. A worker cannot see which queues the others serve,
    nor whether gateways set EVERLOOP_SPLIT_QUEUES.
    """
    named = queues_named_by(agents)
    # An unused name may be misspelled.
    if unused := sorted(set(queues) - set(WORKER_QUEUES) - named):
        _log.warning("no agent names these task queues: see --queues", queues=unused)
    _report_unserved(named, queues)
    _report_rates(named | set(queues), settings)


def _report_unserved(named: set[str], queues: Sequence[str]) -> None:
    missing = sorted(named - set(queues))
    kinds = [kind for kind in WORKER_QUEUES if kind not in queues]
    if not kinds:
        if missing:
            _log.warning(
                "agents name task queues that this worker does not serve: see --queues", queues=missing
            )
        return
    _log.info(
        "other workers have to serve these queues: see --queues",
        queues=[kind for kind in kinds if kind not in SPLIT_KINDS] + missing,
        with_split_queues=[kind for kind in kinds if kind in SPLIT_KINDS],
    )
    apart = [kind for kind in SPLIT_KINDS if kind in queues]
    if apart and WORKFLOWS_QUEUE not in queues:
        _log.info("takes calls only of tasks begun with EVERLOOP_SPLIT_QUEUES=true", queues=apart)


def _report_rates(named: set[str], settings: WorkerSettings) -> None:
    if unknown := sorted(set(settings.queue_rates) - set(WORKER_QUEUES) - named):
        _log.warning("EVERLOOP_QUEUE_RATES: no agent names these task queues", queues=unknown)
    if apart := [kind for kind in SPLIT_KINDS if kind in settings.queue_rates]:
        _log.info(
            "EVERLOOP_QUEUE_RATES: hold only for tasks begun with EVERLOOP_SPLIT_QUEUES=true",
            queues=apart,
        )
