"""OpenAI's Responses API: messages in the form of Chat Completions go in, deltas come out.

Nothing is stored at the provider (`store`: false). State of a reply is sent back in `Opaque.fields` as
`items`, in their order: items of reasoning and of the provider's own tools unchanged, `{"text": n}` for
n characters of the answer, and `{"call": n}` for the tool call of that number. No ids of messages and
calls are sent back: an item with an id is rejected without its reasoning item.

Source: the API reference (https://developers.openai.com/api/reference/resources/responses). Also
supported, beyond it: unknown events and fields, ids that change from event to event, no `output_index`
and no `added` (llama.cpp), items without deltas, and a complete response instead of a stream.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import JsonValue

from everloop.models.catalogue import Provider
from everloop.models.client import DONE, OF_TOOLS, HttpModel, Object, read_events, read_json, read_usage
from everloop.models.failures import Failures
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    EndReason,
    ModelDownError,
    ModelRefusedError,
    ModelRequest,
    Opaque,
    OutputSchema,
    ProviderToolDelta,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)
from everloop.workflows.contract.messages import ListedTool
from everloop.workflows.contract.settings import TOOL_CHOICES, ModelSettings

# The body of a request.


def responses_body(request: ModelRequest, model: str, provider: Provider) -> Object:
    """Return the body of a request; `stop` and `seed` do not exist in this API."""
    settings, names = request.settings, [tool.name for tool in request.tools]
    tools = [*map(_function, request.tools), *(settings.provider_tools or ())]
    fields: Object = {"store": False, "include": ["reasoning.encrypted_content"]}
    fields |= _fields(settings, provider)
    if request.output and (format_ := _format(request.output)):
        fields["text"] = {**fields.get("text", {}), "format": format_}
    fields = {name: value for name, value in fields.items() if name not in provider.entry(model).omit}
    fields |= {name: _both(fields.get(name), value) for name, value in (settings.extra_body or {}).items()}
    if not tools or settings.tool_choice not in (None, *TOOL_CHOICES, *names):
        fields = {name: value for name, value in fields.items() if name not in OF_TOOLS}
    fields |= {"model": model, "input": _input(request.messages, provider.late_system), "stream": True}
    return {**fields, "tools": tools} if tools else fields


def _fields(settings: ModelSettings, provider: Provider) -> Object:
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


def _input(messages: Sequence[Mapping[str, Any]], late_system: str) -> list[Object]:
    items: list[Object] = []
    is_begun = False
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        content = content if isinstance(content, str) else [_part(part) for part in content]
        is_begun |= role != "system"
        if role == "assistant":
            items += _reply_items(message)
        elif role == "tool":
            output = {"call_id": message["tool_call_id"], "output": content}
            items.append({"type": "function_call_output", **output})
        else:
            items.append({"role": late_system if role == "system" and is_begun else role, "content": content})
    return items


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


def _reply_items(message: Mapping[str, Any]) -> list[Object]:
    """Return a reply as its original items, as far as they are still in it."""
    text: str = message.get("content") or ""
    calls = dict(_call_items(message.get("tool_calls") or ()))
    opaque: Object = message.get("opaque") or {}
    layout: list[Object] = [*opaque.get("fields", {}).get("items", ())]
    if not any("text" in place for place in layout):
        layout.insert(0, {"text": len(text)})
    places: list[Object] = [{"call": number} for number in calls]
    layout += [place for place in places if place not in layout]
    texts = _slices(text, [place["text"] for place in layout if "text" in place])
    items: list[Object | None] = []
    for place in layout:
        if "text" in place:
            written, phase = next(texts), {k: v for k, v in place.items() if k == "phase"}
            items.append({"role": "assistant", "content": written, **phase} if written else None)
        else:
            items.append(calls.get(place["call"]) if "call" in place else place)
    return _followed(items)


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
        yield text[start : start + length].removeprefix(_APART)
        start += length


def _followed(items: Sequence[Object | None]) -> list[Object]:
    """Return the existing items; reasoning is rejected without the item after it."""
    kept: list[Object] = []
    is_followed = False
    for item in reversed(items):
        if item is None or item.get("type") != "reasoning":
            is_followed = item is not None
        if item is not None and is_followed:
            kept.insert(0, item)
    return kept


# A reply, event by event.

_APART = "\n\n"
"""Separator of messages of one reply, and of paragraphs of one thought."""

_RUN_BY_CLIENTS = frozenset(
    {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request"}
)
_MAX_ITEM = 65_536
"""Maximum characters of an item that is sent back and published; images of the provider exceed it."""

_OF_CALLS = frozenset({"type", "id", "call_id", "name", "arguments", "status"})
_NO_DETAIL = frozenset({"type", "id", "status", "encrypted_content"})
_REFUSAL = "response.refusal.delta"
_WRITES = {
    "response.output_text.delta": "message",
    _REFUSAL: "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
}
"""Events with a piece of a text, and the types of their items."""

_WHOLES = {
    "response.output_text.done": ("message", "text"),
    "response.function_call_arguments.done": ("function_call", "arguments"),
}
"""Events with a complete text, the types of their items, and its field."""

_REASONS: Mapping[str, EndReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}


@dataclass
class _Item:
    """An item of the reply; `id` is its first id, `whole` the complete item once it is done."""

    type: str
    id: str
    call: int | None = None
    name: str = ""
    written: list[str] = field(default_factory=list[str])
    whole: Object = field(default_factory=dict[str, Any])

    @property
    def is_tool(self) -> bool:
        """Whether it is a call of a tool that the provider runs."""
        return self.call is None and self.type.endswith(("_call", "mcp_list_tools"))

    def place(self) -> Object | None:
        """Return the entry for it among the items to send back, None without one."""
        if self.type == "message":
            phase = {"phase": self.whole["phase"]} if self.whole.get("phase") else {}
            return {"text": sum(map(len, self.written)), **phase} if self.written else None
        if self.call is not None:
            return {"call": self.call}
        if self.type == "reasoning":
            kept = {name: value for name, value in self.whole.items() if name != "status"}  # refused
            return kept if kept.get("encrypted_content") else None
        return self.whole if self.whole and _is_small(self.whole) else None

    def extras(self) -> Object:
        """Return the fields to send back with a call: its number, and unknown ones, such as a namespace."""
        extras = {name: value for name, value in self.whole.items() if name not in _OF_CALLS}
        return {"call": self.call, **extras}

    def tool_delta(self, *, has_ended: bool = True) -> ProviderToolDelta:
        """Return the progress of a tool of the provider; without an end it has failed."""
        name, whole = self.type.removesuffix("_call"), self.whole
        if not has_ended:
            return ProviderToolDelta(self.id, name, "started")
        failed = not whole or whole.get("error") or whole.get("status") in {"failed", "incomplete"}
        detail = {key: value for key, value in whole.items() if key not in _NO_DETAIL}
        status = "failed" if failed else "completed"
        return ProviderToolDelta(self.id, name, status, detail if _is_small(detail) else None)


def _is_small(item: Object) -> bool:
    return len(json.dumps(item)) <= _MAX_ITEM


class _Reader:
    """Converts the events of a reply to deltas."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._item_at: dict[int | None, _Item] = {}
        self._calls = 0
        self._has_spoken = self._has_refused = False
        self._takers: Mapping[str, Callable[[Object], Iterator[Delta]]] = {
            "response.output_item.added": self._begin,
            "response.output_item.done": self._finish,
            **dict.fromkeys(_WHOLES, self._say_whole),
        }

    def read(self, event: Object) -> Iterator[Delta]:
        """Yield the deltas of an event; an unknown one has none."""
        kind: str = event["type"]
        if kind in _WRITES:
            if event["delta"]:
                yield self._say(self._item(event, _WRITES[kind]), event["delta"], kind)
        elif kind in self._takers:
            yield from self._takers[kind](event)
        elif kind == "response.reasoning_summary_part.added":
            item = self._item(event, "reasoning")
            yield from [self._say(item, _APART)] if item.written else ()
        elif kind == "keepalive":  # hidden reasoning, for minutes: not a silent connection
            yield from (ThoughtDelta("", item.id) for item in self._items[-1:] if item.type == "reasoning")
        elif kind in {"response.completed", "response.incomplete"}:
            yield from self._end(event["response"])

    def _begin(self, event: Object) -> Iterator[Delta]:
        found = event["item"]
        item = self._add(event, found["type"], found.get("id"))
        if item.call is not None:
            item.name = found.get("name") or ""
            yield CallDelta(item.call, item.name)
        elif item.is_tool:
            yield item.tool_delta(has_ended=False)

    def _add(self, event: Object, type_: str, id_: str | None) -> _Item:
        """Add an item; events without an index belong to the newest.

        Raises:
            ModelRefusedError: it is a call that cannot be answered here.
        """
        if type_ in _RUN_BY_CLIENTS:
            raise ModelRefusedError(
                f"the model asks its client for a {type_}, which agents do not run: take the tool out of "
                "ModelSettings(provider_tools=…)"
            )
        item = _Item(type_, id_ or "")
        if type_ == "function_call":
            item.call, self._calls = self._calls, self._calls + 1
        self._items.append(item)
        self._item_at[event.get("output_index")] = item
        return item

    def _item(self, event: Object, type_: str, id_: str | None = None) -> _Item:
        """Return the item of an event; its id may change, and the item may be missing."""
        item = self._item_at.get(event.get("output_index"))
        is_it = item is not None and item.type == type_ and not item.whole
        return item if item and is_it else self._add(event, type_, id_ or event.get("item_id"))

    def _say(self, item: _Item, text: str, kind: str = "") -> Delta:
        if item.type == "message":
            text = text if item.written or not self._has_spoken else _APART + text
            self._has_spoken = True
            self._has_refused |= kind == _REFUSAL
        item.written.append(text)
        if item.call is not None:
            return CallDelta(item.call, arguments=text)
        if item.type == "reasoning":
            return ThoughtDelta(text, item.id)
        return RefusalDelta(text) if kind == _REFUSAL else TextDelta(text)

    def _say_whole(self, event: Object) -> Iterator[Delta]:
        """Yield a text without earlier pieces; SGLang's router does not finish its item."""
        type_, name = _WHOLES[event["type"]]
        item = self._item_at.get(event.get("output_index"))
        if item and item.type == type_ and not (item.written or item.whole) and event.get(name):
            yield self._say(item, event[name])

    def _finish(self, event: Object) -> Iterator[Delta]:
        """Yield the missing rest of a finished item."""
        found = event["item"]
        item = self._item(event, found["type"], found.get("id"))
        item.whole = found
        if item.call is not None and not item.name:
            yield CallDelta(item.call, found["name"])
        if not item.written:
            yield from (self._say(item, text, kind) for text, kind in _texts(found) if text)
        if item.type == "reasoning" and item.written:
            yield ThoughtDelta("", item.id, last=True)
        if item.is_tool:
            yield item.tool_delta()

    def _end(self, response: Object) -> Iterator[Delta]:
        if not self._items:
            for found in response.get("output") or ():
                yield from self._finish({"item": found})
        yield from (item.tool_delta() for item in self._items if item.is_tool and not item.whole)
        model, id_ = str(response.get("model") or ""), str(response.get("id") or "")
        usage = read_usage(response.get("usage") or {}, "input", "output")
        yield Ended(self._reason(response), model, id_, usage, self._opaque())

    def _reason(self, response: Object) -> EndReason:
        if response.get("status") == "incomplete":
            details: Object = response.get("incomplete_details") or {}
            return _REASONS.get(details.get("reason") or "", "length")  # the reply is incomplete in any case
        return "tool_calls" if self._calls else "refusal" if self._has_refused else "stop"

    def _opaque(self) -> Opaque:
        """Return the opaque fields; no items if reasoning lacks its encrypted content (404)."""
        items = _followed([item.place() for item in self._items])
        calls = {item.call: item.extras() for item in self._items if item.call is not None}
        lacks = any(item.type == "reasoning" and not item.place() for item in self._items)
        if lacks or all(place.keys() <= {"text", "call"} for place in items):
            return Opaque(calls={number: extras for number, extras in calls.items() if len(extras) > 1})
        return Opaque({"items": cast("list[JsonValue]", items)}, calls)


def _texts(item: Object) -> Iterator[tuple[str, str]]:
    """Yield the texts of a finished item, each with the event of its kind."""
    if item["type"] == "function_call":
        yield item["arguments"], ""
    elif item["type"] == "reasoning":
        yield _APART.join(part["text"] for part in item.get("summary") or item.get("content") or ()), ""
    elif item["type"] == "message":
        yield from ((part["text"], "") for part in item["content"] if "text" in part)
        yield from ((part["refusal"], _REFUSAL) for part in item["content"] if "refusal" in part)


_NO_STREAM = "gave an answer that is no Responses stream"


class Responses(HttpModel):
    """A provider with the Responses API."""

    path = "responses"
    unreadable = (_NO_STREAM, _NO_STREAM)

    def body(self, request: ModelRequest, model: str) -> Object:
        return responses_body(request, model, self.provider)

    def read(
        self, body: AsyncIterable[bytes], failures: Failures, *, is_whole: bool
    ) -> AsyncGenerator[Delta]:
        return _read(_whole(body) if is_whole else _events(body), failures)


async def _events(body: AsyncIterable[bytes]) -> AsyncGenerator[Object]:
    async with aclosing(read_events(body)) as lines:
        async for _, data in lines:
            if not data.startswith(DONE):  # the end of all streams of some gateways
                yield read_json(data)


async def _whole(body: AsyncIterable[bytes]) -> AsyncGenerator[Object]:
    """Yield a response that was not streamed like the last event of a stream."""
    response = json.loads(b"".join([piece async for piece in body]))
    is_error = isinstance(response.get("error"), dict)
    yield response if is_error else {"type": f"response.{response['status']}", "response": response}


async def _read(events: AsyncGenerator[Object], failures: Failures) -> AsyncGenerator[Delta]:
    reader = _Reader()
    async with aclosing(events):
        async for event in events:
            if event.get("error") or event["type"] in {"error", "response.failed"}:
                error = event.get("error") or event.get("response", event).get("error")
                raise failures.of_answer(error or event)
            for delta in reader.read(event):
                yield delta
                if isinstance(delta, Ended):  # later events are useless, or never come
                    return
    raise ModelDownError("the stream ended before the reply was finished")
