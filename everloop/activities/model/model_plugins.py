"""Runs the plugins of an agent before and after its model calls."""

import json
from dataclasses import replace

import structlog
from pydantic import ValidationError
from redis.exceptions import RedisError
from temporalio.exceptions import ApplicationError

from everloop.activities.hook_runner import Hooks, hook_context
from everloop.activities.store_retries import suppress_store_errors
from everloop.agents.agent import Agent
from everloop.agents.hooks import Veto
from everloop.agents.limits import ModelSettings
from everloop.models.interface import ModelRequest
from everloop.stores.scripts import Lease, Step
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.names import name_calls

_log = structlog.get_logger()


class ModelPlugins:
    """The plugins of an agent at one model call. Without hooks they cost nothing.

    A model's reply is stored until they have judged it, so that a worker that dies meanwhile costs no second
    one. If the store fails, the model is called again.
    """

    def __init__(self, agent: Agent, call: CallModelInput, records: ToolRecords, lease: Lease) -> None:
        self._agent = agent
        self._position = call.length
        self.context = hook_context(call.task, iteration=call.iteration, usage=call.usage)
        self.hooks = Hooks(agent, self.context)
        self._judges_replies = self.hooks.has("after_model_call")
        self._records = records
        self._lease = lease

    async def before(self, request: ModelRequest) -> ModelRequest:
        """Return the request after the plugins' changes.

        Raises:
            ApplicationError: `PluginVeto`, or `PluginFailed`: a hook raised, or returned an invalid request.
        """
        if not self.hooks.has("before_model_call"):
            return request
        # In the form that authors write, whose values are validated when a hook sets them.
        offered = replace(request, settings=ModelSettings(**dict(request.settings.given())))
        answer = await self.hooks.before_model_call(offered)
        if isinstance(answer, Veto):
            raise ApplicationError(answer.reason, type=failures.PLUGIN_VETO, non_retryable=True)
        if answer is not offered and (problem := _no_json(answer, request)):
            failed = f"a plugin of agent {self._agent.id!r} failed in before_model_call: {problem}"
            raise ApplicationError(failed, type=failures.PLUGIN_FAILED, non_retryable=True)
        return answer

    async def after(self, reply: AssistantMessage) -> AssistantMessage:
        """Return the reply after the plugins' changes; after a veto it is refused, and calls no tools.

        Its usage is kept.

        Raises:
            OvertakenError: The call belongs to another attempt.
            PluginFailedError: A hook raised.
        """
        if not self._judges_replies:
            return reply
        await self._keep(reply)
        answer = await self.hooks.after_model_call(reply)
        if isinstance(answer, Veto):
            return _refuse(reply, answer.reason)
        if answer.refused:
            return _refuse(answer.model_copy(update={"usage": reply.usage}), answer.refused)
        calls = name_calls(answer.tool_calls, self._position)
        return answer.model_copy(
            update={"tool_calls": calls, "usage": reply.usage, "is_published": reply.is_published}
        )

    async def stored_reply(self) -> AssistantMessage | None:
        """Return the stored reply of an earlier attempt, or None without a readable one."""
        if not self._judges_replies:
            return None
        try:
            stored = await self._records.kept(self._lease.task_id, self._lease.call_id)
            return None if stored is None else AssistantMessage.model_validate(stored)
        except (RedisError, OSError, ValidationError) as error:
            _log.warning("model reply kept for plugins not read", error_type=type(error).__name__)
            return None

    def forgetting(self) -> tuple[Step[bool], ...]:
        """Return the step that removes a stored reply, if there may be one."""
        if not self._judges_replies:
            return ()
        return (self._records.keeping(self._lease, self._lease.call_id, None),)

    async def _keep(self, reply: AssistantMessage) -> None:
        with suppress_store_errors("model reply not kept for plugins"):
            await self._records.keep(self._lease, self._lease.call_id, reply.model_dump(mode="json"))


def _no_json(made: ModelRequest, request: ModelRequest) -> str:
    """Return the reason why a request of plugins cannot be sent, empty if it can."""
    originals = set(map(id, request.messages))  # these may have megabytes of files in them
    messages = [dict(message) for message in made.messages if id(message) not in originals]
    try:
        values = [messages, dict(made.settings.given()).get("extra_body")]
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"its messages or settings are no JSON ({type(error).__name__})"
    return ""


def _refuse(reply: AssistantMessage, reason: str) -> AssistantMessage:
    """Return a reply as refused; its text remains for the model."""
    refused = {"refused": reason, "tool_calls": (), "closing": "", "rejects": False}
    return reply.model_copy(update=refused)
