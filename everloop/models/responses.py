"""Requests to OpenAI's Responses API, from messages in the form of Chat Completions.

Nothing is stored at the provider (`store`: false). State of a reply is sent back in `Opaque.fields` as
`items`, in their order: items of reasoning and of the provider's own tools unchanged, `{"text": n}` for
n characters of the answer, and `{"call": n}` for the tool call of that number. No ids of messages and
calls are sent back: an item with an id is rejected without its reasoning item.

Source: the API reference (https://developers.openai.com/api/reference/resources/responses).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from everloop.models.catalogue import Provider
from everloop.models.events import Object
from everloop.models.interface import ModelRequest, OutputSchema
from everloop.models.provider_client import HttpModel, Message, with_late_role, without_useless_choice
from everloop.models.responses_reply import APART, ResponsesReader, followed
from everloop.workflows.contract.agent_settings import TOOL_CHOICES, ModelSettings
from everloop.workflows.contract.messages import ListedTool


class Responses(HttpModel):
    """A provider with the Responses API."""

    api = "Responses"
    path = "responses"
    reader = ResponsesReader

    def body(self, request: ModelRequest, model: str) -> Object:
        return responses_body(request, model, self.provider)


def responses_body(request: ModelRequest, model: str, provider: Provider) -> Object:
    """Return the body of a request; `stop` and `seed` do not exist in this API."""
    settings, omit = request.settings, provider.entry(model).omit
    fields: Object = {"store": False, "include": ["reasoning.encrypted_content"]}
    fields |= _settings_fields(settings, provider)
    if request.output and (format_ := _format(request.output)):
        fields["text"] = {**fields.get("text", {}), "format": format_}
    fields = {name: value for name, value in fields.items() if name not in omit}
    fields |= {name: _both(fields.get(name), value) for name, value in (settings.extra_body or {}).items()}
    fields = without_useless_choice(fields, request, settings.provider_tools or ())
    fields |= {"model": model, "input": _input(request.messages, provider.late_system), "stream": True}
    tools = [*map(_function, request.tools), *(settings.provider_tools or ())]
    return {**fields, "tools": tools} if tools else fields


def _settings_fields(settings: ModelSettings, provider: Provider) -> Object:
    choice: Any = settings.tool_choice
    fields: Object = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "service_tier": settings.service_tier,
        "reasoning": {"effort": settings.effort} if settings.effort and provider.effort else None,
        "text": {"verbosity": settings.verbosity} if settings.verbosity else None,
        "tool_choice": choice if choice in (None, *TOOL_CHOICES) else {"type": "function", "name": choice},
    }
    return {name: value for name, value in fields.items() if value is not None}


def _both(ours: Any, theirs: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return a field merged with an author's additions: `reasoning.summary`, for example."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**cast("Object", ours), **cast("Object", theirs)}
    if isinstance(ours, list) and isinstance(theirs, list):
        return [*cast("list[Any]", ours), *cast("list[Any]", theirs)]
    return theirs


def _function(tool: ListedTool) -> Object:
    """Return a tool. Not `strict`, which is the default here and accepts only a part of JSON schema."""
    return {"type": "function", **tool.model_dump(), "strict": False}


def _format(output: OutputSchema) -> Object | None:
    if output.by == "json_schema":
        return {"type": "json_schema", "name": output.name, "schema": {**output.schema}, "strict": False}
    return {"type": "json_object"} if output.by == "json_object" else None


def _input(messages: Sequence[Message], late_system: str) -> list[Object]:
    sent = with_late_role(messages, late_system)
    return [item for message in sent for item in _items(message)]


def _items(message: Message) -> list[Object]:
    content = message.get("content") or ""
    content = content if isinstance(content, str) else [_part(part) for part in content]
    match message["role"]:
        case "assistant":
            return _reply_items(message)
        case "tool":
            return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}]
        case role:
            return [{"role": role, "content": content}]


def _part(part: Object) -> Object:
    match part["type"]:
        case "image_url":
            return {"type": "input_image", "detail": "auto", "image_url": part["image_url"]["url"]}
        case "file":
            return {"type": "input_file", **part["file"]}
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case kind:
            return {"type": "input_text", "text": f"[This model does not take {kind} parts.]"}


def _reply_items(message: Message) -> list[Object]:
    """Return a reply as its original items, as far as they are still in it."""
    text: str = message.get("content") or ""
    calls = dict(_call_items(message.get("tool_calls") or ()))
    layout = _layout(message.get("opaque") or {}, text, calls)
    texts = _slices(text, [place["text"] for place in layout if "text" in place])
    return followed([_item(place, texts, calls) for place in layout])


def _layout(opaque: Object, text: str, calls: Mapping[int, Object]) -> list[Object]:
    """Return the places of texts and calls among the other items; a plugin may have added some."""
    layout: list[Object] = [*opaque.get("fields", {}).get("items", ())]
    if not any("text" in place for place in layout):
        layout.insert(0, {"text": len(text)})
    places: list[Object] = [{"call": number} for number in calls]
    return layout + [place for place in places if place not in layout]


def _item(place: Object, texts: Iterator[str], calls: Mapping[int, Object]) -> Object | None:
    if "text" not in place:
        return calls.get(place["call"]) if "call" in place else place
    phase = {"phase": place["phase"]} if "phase" in place else {}
    written = next(texts)
    return {"role": "assistant", "content": written, **phase} if written else None


def _call_items(calls: Sequence[Object]) -> Iterator[tuple[int, Object]]:
    """Yield calls with their numbers in the reply: a plugin may have removed some."""
    for place, call in enumerate(calls):
        extra: Object = {"call": place, **(call.get("opaque") or {})}
        yield extra.pop("call"), {"type": "function_call", "call_id": call["id"], **call["function"], **extra}


def _slices(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """Yield the text of each message; all as the first one, if the text of the reply was changed."""
    if sum(lengths) != len(text):
        lengths = [len(text), *(0 for _ in lengths[1:])]
    start = 0
    for length in lengths:
        yield text[start : start + length].removeprefix(APART)
        start += length
