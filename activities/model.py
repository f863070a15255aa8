"""Language-model calls: Chat Completions, streamed."""

from collections.abc import AsyncIterable, Generator, Sequence
from contextlib import contextmanager
from functools import partial

import structlog
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from redis.exceptions import RedisError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.chat_request import ChatRequest, build_request
from activities.delta_publisher import DeltaPublisher, thought
from activities.deltas import Delta, ThoughtDelta, text_of_deltas
from activities.heartbeat import Heartbeat, heartbeating
from activities.model_events import closing_events, opening_events, recovery_events, retry_events
from activities.model_span import model_span, record_reply
from activities.provider_errors import PROVIDER_ERRORS, provider_failure
from activities.reply_assembler import ReplyAssembler, UnreadableStreamError
from activities.response_draft import ResponseDraft
from activities.task_log import logging_task
from agents.agent import Agent
from agents.errors import UnknownAgentError
from agents.registry import AgentRegistry
from stores.task_views import TaskViews
from stores.transcripts import Transcripts
from workflows.contract import failures
from workflows.contract.calls import CallModelInput
from workflows.contract.events import ArtifactChunk, TaskEvent
from workflows.contract.messages import AssistantMessage, TranscriptMessage
from workflows.contract.ports import ModelPort

_log = structlog.get_logger()


class OpenAIModel(ModelPort):
    """Asks any provider that speaks Chat Completions. `default_model` serves agents that name none."""

    def __init__(
        self,
        client: AsyncOpenAI,
        agents: AgentRegistry,
        views: TaskViews,
        transcripts: Transcripts,
        default_model: str | None,
    ) -> None:
        self._client = client
        self._agents = agents
        self._views = views
        self._transcripts = transcripts
        self._default_model = default_model

    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        with logging_task(call.task):
            async with heartbeating() as heartbeat:
                agent, model = self._find(call)
                draft = ResponseDraft(call.length, activity.info().attempt)
                try:
                    with _explained(model, heartbeat):
                        return await self._reply(call, agent, model, draft)
                except ApplicationError as failure:
                    # A call that lacks its transcript comes again, with the same status: it has said nothing.
                    if failure.type != failures.TRANSCRIPT_MISSING:
                        await self._tell_failure(call, draft, failure)
                    raise

    def _find(self, call: CallModelInput) -> tuple[Agent, str]:
        """Return the agent and the model to ask."""
        try:
            agent = self._agents.find(call.task.agent_id)
        except UnknownAgentError as error:
            raise ApplicationError(str(error), type=failures.AGENT_UNKNOWN) from error
        if model := call.model or self._default_model:
            return agent, model
        raise ApplicationError(
            f"agent {agent.id!r} names no model: set EVERLOOP_MODEL, or Agent(model=…)",
            type=failures.MODEL_REFUSED,
            non_retryable=True,
        )

    async def _reply(
        self, call: CallModelInput, agent: Agent, model: str, draft: ResponseDraft
    ) -> AssistantMessage:
        """Return the reply of an earlier attempt, or ask for one."""
        attempt = activity.info().attempt
        opened = await self._transcripts.open(call.task.task_id, call.task.run_id, call.length, call.new)
        if opened.reply:
            _log.info("model reply found", iteration=call.iteration, attempt=attempt)
            events = [*recovery_events(call, attempt), *_end_of_other(call, opened.reply, draft)]
            return await self._show(call, opened.reply, events)
        if opened.messages is None:
            raise ApplicationError(
                f"the cache does not hold the {call.length} messages of the transcript; send them again",
                type=failures.TRANSCRIPT_MISSING,
                non_retryable=True,
            )
        draft.is_shown |= any(map(_is_answer, opened.messages))
        await self._publish(call, opening_events(call, attempt, model))
        return await self._ask(call, build_request(model, agent, opened.messages), opened.messages, draft)

    async def _ask(
        self,
        call: CallModelInput,
        request: ChatRequest,
        transcript: Sequence[TranscriptMessage],
        draft: ResponseDraft,
    ) -> AssistantMessage:
        """Stream one completion; store it before its end is published."""
        assembler = ReplyAssembler(call.length, _call_ids(transcript))
        async with DeltaPublisher(partial(self._publish, call), draft, call.iteration) as publisher:
            await self._stream(call, request, assembler, publisher)
            rest = await publisher.stop()
        ours = assembler.reply
        reply = await self._store(call, ours)
        end = _end_of_ours(call, ours, rest, draft) if reply == ours else _end_of_other(call, reply, draft)
        _log.info("model replied", iteration=call.iteration, model=reply.model, **reply.usage.model_dump())
        return await self._show(call, reply, end)

    async def _show(
        self, call: CallModelInput, reply: AssistantMessage, end: Sequence[TaskEvent]
    ) -> AssistantMessage:
        """Publish the end of a reply, and say in it if that failed: the workflow then does it."""
        is_shown = await self._try_publish(call, end)
        return reply if is_shown else reply.model_copy(update={"is_shown": False})

    async def _stream(
        self,
        call: CallModelInput,
        request: ChatRequest,
        assembler: ReplyAssembler,
        publisher: DeltaPublisher,
    ) -> None:
        """Read the whole stream; leaving it in any way closes the connection, which ends the billing."""
        with model_span(call.task, request["model"]) as span:
            async with await self._client.chat.completions.create(
                model=request["model"],
                messages=(),
                stream=True,
                stream_options={"include_usage": True},
                # The client would walk through each message of its own argument (0.1 ms each, measured).
                extra_body=request,
            ) as stream:
                await self._try_publish(call, recovery_events(call, activity.info().attempt))
                await _read(stream, assembler, publisher)
            record_reply(span, assembler.reply, assembler.response_id)

    async def _store(self, call: CallModelInput, reply: AssistantMessage) -> AssistantMessage:
        """Return the reply that counts: the first one that any attempt stored.

        If Redis does not answer it is ours: history will hold it, and the next call fills the cache again.
        """
        try:
            return await self._transcripts.put_reply(call.task.task_id, call.task.run_id, call.length, reply)
        except (RedisError, OSError) as error:
            _log.warning("model reply not cached", iteration=call.iteration, error_type=type(error).__name__)
            return reply

    async def _tell_failure(
        self, call: CallModelInput, draft: ResponseDraft, failure: ApplicationError
    ) -> None:
        """Say that a retry follows, or take back the half-written answer of a call that ends here."""
        attempt = activity.info().attempt
        _log.warning("model call failed", iteration=call.iteration, attempt=attempt, failure=str(failure))
        if not failure.non_retryable:
            await self._try_publish(call, retry_events(call, attempt, failure))
        else:
            await self._try_publish(call, [*recovery_events(call, attempt), *_withdrawal(draft)])

    async def _publish(self, call: CallModelInput, events: Sequence[TaskEvent]) -> None:
        await self._views.publish(call.task.task_id, call.task.run_id, events)

    async def _try_publish(self, call: CallModelInput, events: Sequence[TaskEvent]) -> bool:
        """Publish what this call does not depend on; return whether it worked."""
        try:
            if events:
                await self._publish(call, events)
        except (RedisError, OSError) as error:
            _log.warning("events not published", iteration=call.iteration, error_type=type(error).__name__)
            return False
        return True


@contextmanager
def _explained(model: str, heartbeat: Heartbeat) -> Generator[None]:
    """Count a failure of the provider and raise what it means."""
    try:
        yield
    except PROVIDER_ERRORS as error:
        # Its cause would take the provider's text into the workflow history.
        raise provider_failure(error, model, heartbeat.count_failure()) from None


async def _read(
    stream: AsyncIterable[ChatCompletionChunk], assembler: ReplyAssembler, publisher: DeltaPublisher
) -> None:
    try:
        async for chunk in stream:
            publisher.add(assembler.feed(chunk))
    except (ValueError, TypeError, AttributeError) as error:  # no JSON, or JSON of another shape
        problem = type(error).__name__
        raise UnreadableStreamError(
            f"the provider's answer is no Chat Completions stream ({problem}): check OPENAI_BASE_URL"
        ) from None
    publisher.add(assembler.close())


def _end_of_ours(
    call: CallModelInput, reply: AssistantMessage, rest: Sequence[Delta], draft: ResponseDraft
) -> list[TaskEvent]:
    """Return the end of the reply that this attempt has streamed; a text before tool calls is no answer."""
    thoughts = [thought(delta, call.iteration) for delta in rest if isinstance(delta, ThoughtDelta)]
    chunks = _withdrawal(draft) if reply.tool_calls else draft.finish(text_of_deltas(rest))
    return [*thoughts, *closing_events(call.iteration, reply, chunks)]


def _end_of_other(call: CallModelInput, reply: AssistantMessage, draft: ResponseDraft) -> list[TaskEvent]:
    """Return the end of a reply that another attempt has streamed, as far as it came."""
    chunks = _withdrawal(draft) if reply.tool_calls else [draft.replace(reply.text)]
    return closing_events(call.iteration, reply, chunks)


def _withdrawal(draft: ResponseDraft) -> list[ArtifactChunk]:
    return [draft.withdraw()] if draft.is_shown else []


def _is_answer(message: TranscriptMessage) -> bool:
    """Whether a message stood in the view as a whole answer, which a later reply overtakes."""
    return isinstance(message, AssistantMessage) and not message.tool_calls


def _call_ids(transcript: Sequence[TranscriptMessage]) -> frozenset[str]:
    replies = (message for message in transcript if isinstance(message, AssistantMessage))
    return frozenset(call.id for reply in replies for call in reply.tool_calls)
