"""Chat Completions: requests, as OpenAI specifies them, and in the variants of other providers."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pydantic import JsonValue

from everloop.models.catalogue import ModelEntry, Provider
from everloop.models.chat_reply import ChatReader, text_of_parts
from everloop.models.events import Object
from everloop.models.interface import ModelRequest, OutputSchema
from everloop.models.provider_client import HttpModel, Message, with_late_role, without_useless_choice
from everloop.workflows.contract.agent_settings import TOOL_CHOICES, ModelSettings


class Chat(HttpModel):
    """A provider with Chat Completions."""

    api = "Chat Completions"
    path = "chat/completions"
    reader = ChatReader

    def body(self, request: ModelRequest, model: str) -> Object:
        return chat_body(request, model, self.provider)


_SAME_NAMES = frozenset(
    ["temperature", "top_p", "stop", "seed", "verbosity", "parallel_tool_calls", "service_tier"]
)
"""Settings with the same names in the API."""


def chat_body(request: ModelRequest, model: str, provider: Provider) -> Object:
    """Return the body of a request, without fields that are not set."""
    entry = provider.entry(model)
    fields = _settings_fields(request.settings, provider)
    if request.output and (format_ := _response_format(request.output)):
        fields["response_format"] = format_
    fields = {**_without(fields, entry.omit), **(request.settings.extra_body or {})}
    fields = without_useless_choice(fields, request)
    fields |= {"model": model, "messages": _messages(request.messages, provider, entry), "stream": True}
    if request.tools:
        fields["tools"] = [_function(tool.model_dump()) for tool in request.tools]
    return fields


def _settings_fields(settings: ModelSettings, provider: Provider) -> Object:
    fields: Object = {"stream_options": {"include_usage": True}}
    fields |= {name: value for name, value in settings.given() if name in _SAME_NAMES}
    if settings.max_tokens:
        fields[provider.max_tokens_field] = settings.max_tokens
    if settings.effort and provider.effort:
        is_nested = provider.effort == "reasoning"
        fields[provider.effort] = {"effort": settings.effort} if is_nested else settings.effort
    if choice := settings.tool_choice:
        fields["tool_choice"] = choice if choice in TOOL_CHOICES else _function({"name": choice})
    return fields


def _without(fields: Mapping[str, Any], names: AbstractSet[str]) -> Object:
    return {name: value for name, value in fields.items() if name not in names}


def _function(function: Object) -> Object:
    return {"type": "function", "function": function}


def _response_format(output: OutputSchema) -> Object | None:
    """Return the shape of the answer. Not `strict`: OpenAI would accept only a part of JSON schema."""
    if output.by == "json_schema":
        named = {"name": output.name, "schema": {**output.schema}, "strict": False}
        return {"type": "json_schema", "json_schema": named}
    return {"type": "json_object"} if output.by == "json_object" else None


def _messages(messages: Sequence[Message], provider: Provider, entry: ModelEntry) -> list[Object]:
    sent: list[Object] = []
    for message in with_late_role(messages, provider.late_system):
        if provider.reply_after_results and message["role"] == "user" and sent and sent[-1]["role"] == "tool":
            sent.append({"role": "assistant", "content": "[Results read.]"})
        sent.append(_with_opaque(message, entry.omit) if "opaque" in message else {**message})
    return _with_named_ids(sent) if entry.named_call_ids else sent


def _with_named_ids(messages: Sequence[Object]) -> list[Object]:
    """Return messages whose calls have ids such as `functions.search:0`, numbered from the first one on."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    ids = {call["id"]: f"functions.{call['function']['name']}:{number}" for number, call in enumerate(calls)}
    return [_with_ids(message, ids) for message in messages]


def _with_ids(message: Object, ids: Mapping[str, str]) -> Object:
    if "tool_calls" in message:
        return {**message, "tool_calls": [{**call, "id": ids[call["id"]]} for call in message["tool_calls"]]}
    if message["role"] == "tool":
        return {**message, "tool_call_id": ids.get(message["tool_call_id"], message["tool_call_id"])}
    return message


def _with_opaque(message: Message, omit: frozenset[str]) -> Object:
    """Return an assistant message with its opaque fields at their places."""
    made = _without(message, {"opaque"})
    fields = _without(message["opaque"].get("fields", {}), omit)
    if "content" in fields:
        fields["content"] = _rewritten(fields["content"], made.get("content"))
    if calls := made.get("tool_calls"):
        made["tool_calls"] = [{**_without(call, {"opaque"}), **call.get("opaque", {})} for call in calls]
    return {**made, **fields}


def _rewritten(parts: Sequence[Object], text: JsonValue) -> list[Object]:
    """Return the original parts of a content, with the text that a plugin has changed."""
    if text_of_parts(parts) == (text or ""):
        return [*parts]
    others = [part for part in parts if part.get("type") != "text"]
    return [*others, {"type": "text", "text": text}] if text else others
