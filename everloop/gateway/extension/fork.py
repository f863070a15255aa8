"""Forks: new tasks that continue from the history of another, with another message, agent or model.

    POST /tasks/{id}/fork   {"iteration": 3, "message": {…A2A Message…}, "agent": "…", "model": "…"}

The new task gets the transcript, with the results of its calls. No call is repeated (ADR 38).
"""

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar
from uuid import uuid4

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from pydantic import Field
from starlette.responses import Response

from everloop.agents.agent import Agent
from everloop.agents.errors import UnknownAgentError
from everloop.gateway.auth.scopes import check_agent
from everloop.gateway.context import Viewer, identity_of
from everloop.gateway.errors import KeyReusedError
from everloop.gateway.extension.history_handlers import find_task
from everloop.gateway.http.http_calls import HttpCall, RequestBody, answer
from everloop.gateway.http.http_errors import ConflictError
from everloop.gateway.requests.incoming_messages import IncomingMessage, content_of, read_message
from everloop.gateway.requests.proto import read_params
from everloop.gateway.services import Services
from everloop.gateway.tasks.snapshots import SMALL_BYTES
from everloop.runtime.protocol.a2a_tasks import TaskUrl, to_task
from everloop.stores.log.log_types import Snapshot
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage, TranscriptMessage, UserMessage
from everloop.workflows.contract.names import (
    derive_task_id,
    is_child_task_id,
    stored_result_name,
    unique_message_id,
    view_message_id,
)
from everloop.workflows.contract.tasks import AgentSpec, Fork, TaskView

MAX_ITERATION = 1_000_000


class _ForkBody(RequestBody):
    expected: ClassVar[str] = (
        '{"iteration": 3, "message": {…}, "agent": "…", "model": "…"}, of which each may be left out; '
        "iteration counts from 1, and 0 keeps what was said before the first one"
    )

    iteration: int | None = Field(default=None, ge=0, le=MAX_ITERATION)
    message: dict[str, Any] | None = None
    agent: str = ""
    model: str = ""


async def fork(services: Services, call: HttpCall) -> Response:
    """Start a fork. The same Idempotency-Key or messageId finds it again."""
    try:
        snapshot = await _begun(services, call, await call.body(_ForkBody))
    except KeyReusedError as error:
        raise ConflictError(str(error)) from None
    task = to_task(snapshot.view, services.settings.url)
    return answer({"task": MessageToDict(task)}, 201)


async def _begun(services: Services, call: HttpCall, body: _ForkBody) -> Snapshot:
    """Return the fork of a request: a new one, or the existing one for a retry."""
    origin_id = call.id()
    origin = (await find_task(services, call, origin_id)).view
    if is_child_task_id(origin_id):
        raise InvalidParamsError(
            f"task {origin_id!r} is a sub-agent's, which is read only; fork {origin.task_id!r}"
        )
    agent, spec = _agent(services, call, body, origin)
    incoming = _message(services, call, body, agent, origin)
    fork_id = _fork_id(call, body, agent, origin, incoming)
    snapshot = await _stored_fork(services, fork_id, Viewer(call.owner, agent.id), incoming, call)
    if snapshot is None:
        fork = await _past(services, origin, body.iteration)
        said = replace(incoming or _said_again(fork, agent, call.owner, origin.context_id), task_id=fork_id)
        _check(said, fork, is_new=incoming is not None)
        admitted = await services.admission.fork(said, identity_of(call.caller), spec, fork)
        snapshot = await services.snapshots.complete(admitted.snapshot, call.held)
    return snapshot


def _agent(services: Services, call: HttpCall, body: _ForkBody, origin: TaskView) -> tuple[Agent, AgentSpec]:
    """Return the agent that continues, and its definition.

    Raises:
        InvalidParamsError: the agent does not exist, or the model may not be chosen.
        ForbiddenError: the caller has no access to the agent.
    """
    agent_id = body.agent or origin.agent_id
    check_agent(call.caller, agent_id)
    try:
        agent = services.agents.find(agent_id)
    except UnknownAgentError as error:
        raise InvalidParamsError(f"agent: {error}") from None
    spec = agent.spec.model_copy(update={"routing": "task"})
    if not body.model:
        return agent, spec
    specs = [each.spec for each in services.agents]
    named = {name for each in specs for name in (each.model, *each.fallback_models) if name}
    if not any(fnmatchcase(body.model, each) for each in (*named, *services.settings.fork_models)):
        raise InvalidParamsError(
            f"model {body.model!r} may not be chosen here; choose one that an agent names "
            f"({', '.join(sorted(named)) or 'none does'}), or ask the operator for EVERLOOP_FORK_MODELS"
        )
    return agent, spec.model_copy(update={"model": body.model, "fallback_models": ()})


def _message(
    services: Services, call: HttpCall, body: _ForkBody, agent: Agent, origin: TaskView
) -> IncomingMessage | None:
    """Return the message of the fork, None if there is no message.

    Raises:
        A2AError: as for SendMessage; or the message names a task or context.
    """
    if body.message is None:
        return None
    sent = read_params(pb.SendMessageRequest, {"message": body.message})
    if sent.message.task_id or sent.message.context_id not in {"", origin.context_id}:
        raise InvalidParamsError(
            "message.taskId and message.contextId are those of the fork, which has the context of its "
            "origin; leave them out"
        )
    limit = services.settings.max_message_bytes
    incoming = read_message(sent, call.owner, agent, max_bytes=limit, key=call.key)
    return replace(incoming, context_id=origin.context_id)


async def _stored_fork(
    services: Services, fork_id: str, viewer: Viewer, incoming: IncomingMessage | None, call: HttpCall
) -> Snapshot | None:
    """Return the fork if this request is a retry.

    Raises:
        KeyReusedError: the key or id was used with another message.
    """
    _, stored = await services.views.find(fork_id, most=SMALL_BYTES)
    if stored is None:
        return None
    complete = await services.snapshots.complete(
        await services.snapshots.take(fork_id, viewer, stored=stored), call.held
    )
    if incoming and incoming.find_repeated(complete.view) is None and incoming.key:
        raise incoming.changed()
    return complete


async def _past(services: Services, origin: TaskView, iteration: int | None) -> Fork:
    """Return the initial transcript of the fork.

    Raises:
        InvalidParamsError: the iteration does not exist, or its calls have not ended.
        UnavailableError: no worker returns the transcript, or Temporal is unavailable.
    """
    replies, first_id = dict[int, int](), ""
    last_request: tuple[int, int] | None = None
    async with aclosing(
        services.histories.events(TaskUrl(origin.task_id, origin.context_id, services.settings.url))
    ) as past:
        async for event in past:
            data = event.item.data
            if event.item.type == "message" and not first_id:
                message = data.get("message")
                first_id = str(message.get("messageId")) if isinstance(message, dict) else ""
            elif event.item.type == "modelCall" and data["purpose"] == "reply":
                last_request = event.place.iteration, int(str(data["position"]))
            elif event.item.type == "modelReply" and last_request and "error" not in data:
                replies[last_request[0]] = last_request[1]
    transcript = await services.tasks.transcript(origin.task_id)
    fork_iteration, end = _end(transcript, replies, iteration)
    messages = tuple(_readable(message, origin.task_id) for message in transcript[:end])
    first = next((at for at, message in enumerate(messages) if _is_called(message, first_id)), 0)
    return Fork(task_id=origin.task_id, iteration=fork_iteration, messages=messages, first=first)


def _fork_id(
    call: HttpCall, body: _ForkBody, agent: Agent, origin: TaskView, incoming: IncomingMessage | None
) -> str:
    """Return the id of the fork's task: the same for retries, if the request has a key or id."""
    about = ["fork", origin.task_id, body.iteration, body.model]
    if call.key:
        message_id = unique_message_id("", call.key)
    elif incoming and agent.deduplicate:
        message_id = incoming.message.message_id
        about.append(content_of(incoming.message, origin.context_id, incoming.references).decode())
    else:
        message_id = str(uuid4())
    return derive_task_id(call.owner, agent.id, message_id, json.dumps(about).encode())


def _said_again(fork: Fork, agent: Agent, owner: str, context_id: str) -> IncomingMessage:
    """Return the last user message of the transcript: the input of a fork without its own message.

    Raises:
        InvalidParamsError: the transcript has no user message.
    """
    said = [each for each in fork.messages if isinstance(each, UserMessage) and each.message_id]
    if not said:
        raise InvalidParamsError("the past up to this iteration has no message; send one")
    return IncomingMessage(
        message=said[-1].model_copy(update={"answers": ""}),
        agent=agent,
        owner=owner,
        files=(),
        task_id="",
        is_new=True,
        context_id=context_id,
        digest="",
        references=(),
        key="",
        history_length=None,
        return_immediately=True,
        push=None,
    )


def _check(said: IncomingMessage, fork: Fork, *, is_new: bool) -> None:
    """Reject a fork that the model could not continue.

    Raises:
        InvalidParamsError: names the message to send.
    """
    last = fork.messages[-1] if fork.messages else None
    if not is_new and isinstance(last, AssistantMessage):
        raise InvalidParamsError(
            f"iteration {fork.iteration} ended with a reply to the user; send a message that goes on from "
            "there, or a smaller iteration (0: from the beginning)"
        )
    if is_new and any(_is_called(each, view_message_id(said.message.message_id)) for each in fork.messages):
        raise InvalidParamsError(
            f"message.messageId {view_message_id(said.message.message_id)!r} is that of a message of the "
            "past; give the message an id of its own"
        )


def _end(
    transcript: Sequence[TranscriptMessage], replies: dict[int, int], iteration: int | None
) -> tuple[int, int]:
    """Return the last iteration of the fork, and the end of its transcript.

    Raises:
        InvalidParamsError: the iteration does not exist, or its calls have not ended.
    """
    ends = {number: _end_of(transcript, at) for number, at in replies.items()}
    complete = {0: min(replies.values(), default=len(transcript))}
    complete |= {number: end for number, end in ends.items() if end is not None}
    chosen = max(complete) if iteration is None else iteration
    if chosen in complete:
        return chosen, complete[chosen]
    if chosen in ends:
        raise InvalidParamsError(
            f"iteration {chosen} has calls that have not ended; wait, or send a smaller one"
        )
    raise InvalidParamsError(f"iteration {chosen} is none of this task, which has had {max(complete)}")


def _end_of(transcript: Sequence[TranscriptMessage], at: int) -> int | None:
    """Return the end of the results of the reply at a position; None while some are missing."""
    reply = transcript[at] if at < len(transcript) else None
    if not isinstance(reply, AssistantMessage):
        return None
    end = at + 1 + len(reply.tool_calls)
    results = transcript[at + 1 : end]
    is_complete = len(results) == len(reply.tool_calls) and all(
        isinstance(each, ToolMessage) for each in results
    )
    return end if is_complete else None


def _readable(message: TranscriptMessage, task_id: str) -> TranscriptMessage:
    """Return a message of which another task can read the rest, if it is the beginning of a long result."""
    if not (isinstance(message, ToolMessage) and message.kept):
        return message
    stored_name = stored_result_name(task_id, message.kept)
    content = message.content.replace(f'read_result("{message.kept}"', f'read_result("{stored_name}"')
    return message.model_copy(update={"kept": stored_name, "content": content})


def _is_called(message: TranscriptMessage, message_id: str) -> bool:
    return isinstance(message, UserMessage) and view_message_id(message.message_id) == message_id
