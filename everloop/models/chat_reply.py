"""Replies of Chat Completions, chunk by chunk, as OpenAI specifies them and as other providers write them.

Also supported, beyond the specification: chunks without choices or delta; usage in its own chunk, in the
last one or in every one (the last counts); reasoning in fields of several names, or as parts of the
content; tool calls complete or in fragments, with an id on each fragment, on the first or on none, with an
index, with the wrong one or with none, or with the id and index of the call before; a complete reply in
place of a chunk. Unspecified fields are stored and sent back.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everloop.models.events import Object, is_object
from everloop.models.interface import (
    MAX_OPAQUE,
    CallDelta,
    Delta,
    Ended,
    EndReason,
    ModelDownError,
    Opaque,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)
from everloop.models.opaque import extend, merge, without_flags
from everloop.models.provider_client import ReplyReader, read_usage

_REASONS: Mapping[str, EndReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "malformed_function_call": "malformed",
}
"""End of a reply by finish reasons of providers in lower case; others (stop, eos, end_turn) mean "stop"."""

_BROKEN_OFF = {"error", "insufficient_system_resource", "network_error", "abort", "aborted", "cancelled"}
"""Finish reasons that mean a failure of the provider."""

_NOTHING = {"", "null"}
"""Texts that some servers write instead of an empty value."""

_REASONING = ("reasoning_content", "reasoning", "thinking")
_DETAILS = "reasoning_details"

_KNOWN = frozenset(
    ["role", "content", "refusal", "tool_calls", "function_call", "audio", "logprobs", "index", "annotations"]
)
_KNOWN_OF_CALLS = frozenset(["id", "type", "function", "index"])


class ChatReader(ReplyReader):
    """Reads the chunks of one reply, and collects its opaque fields."""

    def __init__(self) -> None:
        self._reason = ""
        self._model = ""
        self._id = ""
        self._usage: Object = {}
        self._has_text = self._has_refusal = False
        self._content: list[Object] | None = None
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls = _Calls()
        self._fields: Object = {}
        self._texts: dict[str, list[str]] = {}
        self._size = 0
        """Size of opaque fields in characters; above the limit, no more is added."""

    def read(self, event: Object) -> Iterator[Delta]:
        self._id = event.get("id") or self._id
        self._model = event.get("model") or self._model
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            if delta := choice["delta"] if "delta" in choice else _as_delta(choice.get("message")):
                yield from self._add(delta)
            if (reason := choice.get("finish_reason") or "") not in _NOTHING:
                self._reason = reason

    @property
    def is_empty(self) -> bool:
        return not (self._has_text or self._has_refusal or self._calls or self._reason)

    def end(self, *, is_done: bool) -> Ended:
        reason = self._reason.lower().partition(":")[0].strip()
        if reason in _BROKEN_OFF:
            raise ModelDownError(f"the provider broke its reply off ({reason})")
        if not (reason or is_done):
            raise ModelDownError("the stream ended before the reply was finished")
        usage = read_usage(self._usage, "prompt", "completion")
        return Ended(self._meant(reason), str(self._model), str(self._id), usage, self._opaque())

    def _meant(self, reason: str) -> EndReason:
        has_calls = bool(self._calls)
        meant = _REASONS.get(reason) or ("tool_calls" if has_calls and not reason else "stop")
        return "refusal" if self._has_refusal and not has_calls and meant == "stop" else meant

    def _add(self, delta: Object) -> Iterator[Delta]:
        if thought := _thought_of(delta):
            self._thought.append(thought)
            yield ThoughtDelta(thought)
        if content := delta.get("content"):
            yield from self._add_text(content) if isinstance(content, str) else self._add_parts(content)
        if refusal := delta.get("refusal"):
            self._has_refusal = True
            yield RefusalDelta(refusal)
        yield from self._calls.add(delta)
        if delta.keys() - _KNOWN:
            self._keep_fields({name: value for name, value in delta.items() if name not in _KNOWN})

    def _keep_fields(self, extra: Object) -> None:
        """Store opaque fields of the message; texts come in pieces, and are joined in the end."""
        for name, value in extra.items():
            if isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
        rest = {name: value for name, value in extra.items() if not isinstance(value, str)}
        if rest and self._size <= MAX_OPAQUE:
            self._size += merge(self._fields, without_flags(rest))

    def _add_text(self, text: str) -> Iterator[Delta]:
        self._has_text = True
        if self._content is None:
            self._text.append(text)
        else:
            self._keep_parts([{"type": "text", "text": text}])
        yield TextDelta(text)

    def _add_parts(self, parts: Sequence[Object]) -> Iterator[Delta]:
        """Add content in the form of a list of parts; from then on all of it is stored in one list."""
        if self._content is None:
            before = "".join(self._text)
            self._content = [{"type": "text", "text": before}] if before else []
        self._keep_parts(parts)
        for part in parts:
            if part.get("type") == "text" and part.get("text"):
                self._has_text = True
                yield TextDelta(part["text"])
            elif text := _text_of_thinking(part):
                yield ThoughtDelta(text)

    def _keep_parts(self, parts: Sequence[Object]) -> None:
        if self._content is not None and self._size <= MAX_OPAQUE:
            self._size += extend(self._content, parts)

    def _opaque(self) -> Opaque:
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        fields = {
            name: value for name, value in {**texts, **self._fields}.items() if value not in ("", [], {})
        }
        thought = "".join(self._thought)
        same = [name for name in _REASONING if thought and fields.get(name) == thought]
        # Its details hold the reasoning as well: providers with such a field need no other copy.
        reasoning_field = same[0] if same and not fields.get(_DETAILS) else ""
        fields = {name: value for name, value in fields.items() if name not in same}
        if self._content and any(part.get("type") != "text" for part in self._content):
            fields["content"] = self._content
        return Opaque(fields, self._calls.opaque, reasoning_field)


def _as_delta(message: Object | None) -> Object | None:
    """Return a message, which some servers send whole, as one delta: each of its calls is complete."""
    if not (message and message.get("tool_calls")):
        return message
    calls = [{**call, "index": index, "id": None} for index, call in enumerate(message["tool_calls"])]
    return {**message, "tool_calls": calls}


def _thought_of(delta: Object) -> str:
    """Return the reasoning of a delta; several fields hold the same text."""
    texts = (delta.get(name) for name in _REASONING)
    if text := next((text for text in texts if isinstance(text, str) and text), ""):
        return text
    details: Sequence[Object] = delta.get(_DETAILS) or ()
    return "".join(each.get("text") or each.get("summary") or "" for each in details)


def text_of_parts(parts: Sequence[Object]) -> str:
    """Return the text of a content that is a list of parts."""
    return "".join(part.get("text") or "" for part in parts if part.get("type") == "text")


def _text_of_thinking(part: Object) -> str:
    thinking = part.get("thinking")
    return thinking if isinstance(thinking, str) else text_of_parts(thinking or ())


@dataclass
class _Call:
    number: int
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    opaque: Object = field(default_factory=dict[str, Any])
    has_id: bool = False

    def is_followed_by(self, name: str, arguments: str, *, has_new_index: bool) -> bool:
        """Return True for a fragment of another call, although it has the id or the index of this one.

        A name with a new index, or with the beginning of an object, starts another call after complete
        arguments; some servers repeat both in each fragment.
        """
        if not (name and (has_new_index or arguments.startswith("{"))):
            return False
        written = "".join(self.arguments)
        return (has_new_index or arguments != written) and is_object(written)


class _Calls:
    """The tool calls of one reply, from fragments."""

    def __init__(self) -> None:
        self._all: list[_Call] = []
        self._of_id: dict[str, _Call] = {}
        self._at_index: dict[int, _Call] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def opaque(self) -> Mapping[int, Object]:
        return {call.number: call.opaque for call in self._all if call.opaque}

    def add(self, delta: Object) -> Iterator[CallDelta]:
        """Add the fragments in a delta."""
        for fragment in delta.get("tool_calls") or ():
            yield from self._add(fragment)
        if function := delta.get("function_call"):  # the older form of calls, one per reply
            yield from self._add({"index": 0, "function": function})

    def _add(self, fragment: Object) -> Iterator[CallDelta]:
        function: Object = fragment.get("function") or {}
        name: str = function.get("name") or ""
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # an object, already parsed
            arguments = json.dumps(arguments, ensure_ascii=False)
        call = self._call_of(fragment, name, arguments)
        extra = {key: value for key, value in fragment.items() if key not in _KNOWN_OF_CALLS}
        if extra and self._size <= MAX_OPAQUE:
            self._size += merge(call.opaque, extra)
        call.arguments.append(arguments)
        name = "" if call.name else name  # later fragments repeat it
        call.name += name
        if name or arguments or not call.name:
            yield CallDelta(call.number, name, arguments)

    def _call_of(self, fragment: Object, name: str, arguments: str) -> _Call:
        index, id_ = fragment.get("index"), fragment.get("id")
        id_ = "" if id_ is None or id_ in _NOTHING else str(id_)
        call = self._begun(index, id_, name)
        is_new = index is not None and index not in self._at_index
        if call is None or call.is_followed_by(name, arguments, has_new_index=is_new):
            self._all.append(call := _Call(len(self._all)))
        if id_:
            self._of_id[id_] = call
            call.has_id = True
        if index is not None:
            self._at_index[index] = call
        return call

    def _begun(self, index: int | None, id_: str, name: str) -> _Call | None:
        """Return the call that a fragment belongs to: ids take precedence over indexes."""
        if id_ in self._of_id:
            return self._of_id[id_]
        if index is None:
            return None if id_ or name or not self._all else self._all[-1]
        call = self._at_index.get(index)
        return None if call and id_ and call.has_id else call
