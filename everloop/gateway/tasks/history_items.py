"""Items of a task's history, as JSON for clients. Pure.

Their types and fields are listed in docs/protocol/extension.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue

from everloop.runtime.protocol.a2a_tasks import FORK, TaskUrl, result_url, to_message
from everloop.workflows.contract.calls import CallModelInput, CompactContextInput, ToolCallInput
from everloop.workflows.contract.events import REASON, StatusChanged
from everloop.workflows.contract.messages import AssistantMessage, Message, SummaryMessage, ToolMessage
from everloop.workflows.contract.names import is_child_task_id
from everloop.workflows.contract.tasks import AgentSpec, TaskInput

Data = dict[str, JsonValue]


@dataclass(frozen=True)
class Item:
    """One item of a task's history."""

    type: str
    at: datetime
    data: Data


def created(task: TaskInput, url: TaskUrl) -> Iterator[Item]:
    """Yield the start of a task: its agent, its origin if it is a fork, and its input."""
    data: Data = {"agentId": task.agent.id, "contextId": task.context_id, **_definition(task.agent)}
    if task.fork:
        data[FORK] = {"taskId": task.fork.task_id, "iteration": task.fork.iteration}
    if is_child_task_id(url.task_id):
        data["parentTaskId"] = url.task_id.rpartition("/")[0]
    yield Item("taskCreated", task.created_at, data)
    yield Item("message", task.created_at, message_data(task.message, url))


def _definition(agent: AgentSpec) -> Data:
    """Return the public fields of the agent that the task has pinned."""
    limits = {
        "iterations": agent.max_iterations,
        "tokens": agent.max_tokens,
        "cost": agent.max_cost,
        "seconds": agent.wall_clock,
    }
    return {
        "agentVersion": agent.version,
        "limits": {name: limit for name, limit in limits.items() if limit is not None},
        "tools": [*agent.tools],
    }


def message_data(message: Message, url: TaskUrl) -> Data:
    """Return a message in the form of A2A."""
    return {"role": message.role, "message": MessageToDict(to_message(message, url))}


def status(changed: StatusChanged, url: TaskUrl) -> Item:
    """Return a status, without the message received with it, which is a separate item."""
    data: Data = {"state": changed.state.value, **changed.metadata}
    if changed.message:
        reason = changed.message.metadata.get(REASON)
        data |= message_data(changed.message, url) | ({REASON: reason} if reason else {})
    if changed.questions:
        data["questions"] = [
            {"id": each.id, "kind": each.kind.value, "text": each.text, "callId": each.call.id}
            for each in changed.questions
        ]
    return Item("status", changed.at, data)


def model_call(call: CallModelInput | CompactContextInput, at: datetime) -> Item:
    """Return the start of a model call; the reply gets the `position` in the transcript."""
    purpose = "summary" if isinstance(call, CompactContextInput) else "reply"
    return Item("modelCall", at, {"model": call.model, "purpose": purpose, "position": call.length})


def reply_data(reply: AssistantMessage | SummaryMessage) -> Data:
    """Return a reply of the model, without the fields for its provider."""
    if isinstance(reply, SummaryMessage):
        return {"summary": reply.text, "usage": reply.usage.to_metadata()}
    calls: list[JsonValue] = [
        {"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.tool_calls
    ]
    optional: Data = {
        "thought": reply.reasoning,
        "toolCalls": calls,
        "refused": reply.refused,
        "closing": reply.closing,
        "reason": reply.reason,
    }
    return {
        "model": reply.source or reply.model,
        "text": reply.text,
        "finishReason": reply.ended_with,
        "usage": reply.usage.to_metadata(),
        **{name: value for name, value in optional.items() if value},
    }


def tool_call(run: ToolCallInput, at: datetime) -> Item:
    """Return the start of a tool call; `answers` are those for which the call is repeated."""
    data: Data = {"callId": run.call.id, "name": run.call.name, "arguments": run.call.arguments}
    if run.answers:
        data["answers"] = [
            {"question": each.question_id, "approved": each.approved, "by": each.by} for each in run.answers
        ]
    return Item("toolCall", at, data)


def tool_result(result: ToolMessage, at: datetime, times: Data, url: TaskUrl) -> Iterator[Item]:
    """Yield the result of a call, and the artifacts that it wrote."""
    yield Item("toolResult", at, {**result_data(result, url), **times})
    if result.outcome == "ok":
        for artifact_id in result.artifacts:
            yield Item("artifact", at, {"artifactId": artifact_id, "callId": result.call_id})


def result_data(result: ToolMessage, url: TaskUrl) -> Data:
    """Return the result as the model reads it; of a truncated one also the complete size and its address."""
    data: Data = {
        "callId": result.call_id,
        "name": result.name,
        "result": result.content,
        "outcome": result.outcome,
        "isError": result.outcome != "ok",
    }
    if result.whole:
        data |= {"isCut": True, "size": result.whole}
        if result.kept and not is_child_task_id(url.task_id):  # a sub-agent's are not served
            data["url"] = result_url(url.public_url, url.task_id, result.call_id)
    if result.raised_at:
        data["raisedAt"] = result.raised_at
    if result.cached:
        data["isCached"] = True
    return data
