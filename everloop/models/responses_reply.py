"""Replies of OpenAI's Responses API, event by event.

Also supported, beyond the reference: unknown events and fields, ids that change from event to event, no
`output_index` and no `added` (llama.cpp), items without deltas, and a complete response in place of events.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import JsonValue

from everloop.models.events import Object
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    EndReason,
    ModelDownError,
    ModelRefusedError,
    Opaque,
    ProviderToolDelta,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)
from everloop.models.provider_client import ReplyReader, read_usage

APART = "\n\n"
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
        match self.type:
            case "message" if self.written:
                phase = {"phase": self.whole["phase"]} if self.whole.get("phase") else {}
                return {"text": sum(map(len, self.written)), **phase}
            case "function_call":
                return {"call": self.call}
            case "reasoning" if self.whole.get("encrypted_content"):
                return {name: value for name, value in self.whole.items() if name != "status"}  # refused
            case "message" | "reasoning":
                return None
            case _:
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


class ResponsesReader(ReplyReader):
    """Converts the events of a reply to deltas."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._item_at: dict[int | None, _Item] = {}
        self._calls = 0
        self._has_spoken = self._has_refused = False
        self._ended: Ended | None = None
        self._takers: Mapping[str, Callable[[Object], Iterator[Delta]]] = {
            "response.output_item.added": self._begin,
            "response.output_item.done": self._finish,
            **dict.fromkeys(_WHOLES, self._say_whole),
            "response.reasoning_summary_part.added": self._begin_paragraph,
            "keepalive": self._keep_alive,
            "response.completed": self._end,
            "response.incomplete": self._end,
        }

    @property
    def is_empty(self) -> bool:
        return not self._items

    @property
    def has_ended(self) -> bool:
        return self._ended is not None

    def read(self, event: Object) -> Iterator[Delta]:
        if "type" not in event:  # a complete response
            event = {"type": f"response.{event['status']}", "response": event}
        kind: str = event["type"]
        if kind in _WRITES and event["delta"]:
            yield self._say(self._item(event, _WRITES[kind]), event["delta"], kind)
        elif kind in self._takers:
            yield from self._takers[kind](event)

    def end(self, *, is_done: bool) -> Ended:
        if not self._ended:
            raise ModelDownError("the stream ended before the reply was finished")
        return self._ended

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
            text = text if item.written or not self._has_spoken else APART + text
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

    def _begin_paragraph(self, event: Object) -> Iterator[Delta]:
        item = self._item(event, "reasoning")
        yield from [self._say(item, APART)] if item.written else ()

    def _keep_alive(self, event: Object) -> Iterator[Delta]:
        """Yield an empty thought during hidden reasoning, for minutes: it is not a silent connection."""
        yield from (ThoughtDelta("", item.id) for item in self._items[-1:] if item.type == "reasoning")

    def _end(self, event: Object) -> Iterator[Delta]:
        response: Object = event["response"]
        if not self._items:
            for found in response.get("output") or ():
                yield from self._finish({"item": found})
        yield from (item.tool_delta() for item in self._items if item.is_tool and not item.whole)
        model, id_ = str(response.get("model") or ""), str(response.get("id") or "")
        usage = read_usage(response.get("usage") or {}, "input", "output")
        self._ended = Ended(self._reason(response), model, id_, usage, self._opaque())

    def _reason(self, response: Object) -> EndReason:
        if response.get("status") == "incomplete":
            details: Object = response.get("incomplete_details") or {}
            return _REASONS.get(details.get("reason") or "", "length")  # the reply is incomplete in any case
        return "tool_calls" if self._calls else "refusal" if self._has_refused else "stop"

    def _opaque(self) -> Opaque:
        """Return the opaque fields; no items if reasoning lacks its encrypted content (404)."""
        items = followed([item.place() for item in self._items])
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
        yield APART.join(part["text"] for part in item.get("summary") or item.get("content") or ()), ""
    elif item["type"] == "message":
        yield from ((part["text"], "") for part in item["content"] if "text" in part)
        yield from ((part["refusal"], _REFUSAL) for part in item["content"] if "refusal" in part)


def followed(items: Sequence[Object | None]) -> list[Object]:
    """Return the existing items; reasoning is rejected without the item after it."""
    kept: list[Object] = []
    is_followed = False
    for item in reversed(items):
        if item is None or item.get("type") != "reasoning":
            is_followed = item is not None
        if item is not None and is_followed:
            kept.insert(0, item)
    return kept
