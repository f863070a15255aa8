"""What a worker calls, and on which queue."""

from collections.abc import Callable
from dataclasses import dataclass

from everloop.workflows.contract import names
from everloop.workflows.contract.housekeeping import HousekeepingPort, housekeeping_calls
from everloop.workflows.contract.ports import (
    AgentPort,
    ContextPort,
    ModelPort,
    NarratorPort,
    PublishPort,
    PushPort,
    ToolPort,
    TranscriptPort,
)


@dataclass(frozen=True)
class Ports:
    """One implementation for each port; for what is None there is nobody: it does not happen."""

    model: ModelPort
    tools: ToolPort
    transcript: TranscriptPort
    publish: PublishPort
    agents: AgentPort
    context: ContextPort
    push: PushPort | None = None
    narrator: NarratorPort | None = None
    housekeeping: HousekeepingPort | None = None


def calls_of(queue: str, ports: Ports) -> list[Callable[..., object]]:
    """Return what is called on a queue. On that of workflows there may be any call of a former version."""
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
    calls: dict[str, list[Callable[..., object]]] = {
        names.WORKFLOWS_QUEUE: [*short, *tools, *model, *housekeeping_calls(ports.housekeeping)],
        names.MODEL_QUEUE: [*model],
        names.TOOLS_QUEUE: [*tools],
        names.PUSH_QUEUE: [ports.push.deliver_push] if ports.push else [],
        names.NARRATOR_QUEUE: [ports.narrator.narrate] if ports.narrator else [],
    }
    return calls.get(queue, [*model, *tools])
