"""Chat Completions, as specified by OpenAI and as implemented by other providers.

Providers differ. Also supported, beyond the specification: chunks without choices or delta; usage in
its own chunk, in the last one or in every one (the last counts); reasoning in fields of several names,
or as parts of the content; tool calls complete or in fragments, with an id on each fragment, on the
first or on none, with an index, with the wrong one or with none, or with the id and index of the call
before; "[DONE]" without a finish reason; a complete reply instead of a stream; errors in the middle of
one. Unspecified fields are stored and sent back.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from pydantic import JsonValue

from everloop.models.catalogue import ModelEntry, Provider
from everloop.models.client import (
    DONE,
    OF_TOOLS,
    HttpModel,
    Object,
    drain,
    extend,
    is_object,
    merge,
    read_events,
    read_json,
    read_usage,
    without_flags,
)
from everloop.models.failures import Failures, error_in
from everloop.models.interface import (
    MAX_OPAQUE,
    CallDelta,
    Delta,
    Ended,
    EndReason,
    ModelDownError,
    ModelRequest,
    Opaque,
    OutputSchema,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)
from everloop.workflows.contract.settings import TOOL_CHOICES

# The body of a request.

_SAME_NAMES = frozenset(
    ["temperature", "top_p", "stop", "seed", "verbosity", "parallel_tool_calls", "service_tier"]
)
"""Settings with the same names in the API."""


def chat_body(request: ModelRequest, model: str, provider: Provider) -> Object:
    """Return the body of a request, without fields that are not set.

    A model whose required tool is not offered may answer.
    """
    settings, tools = request.settings, [tool.name for tool in request.tools]
    entry, choice = provider.entry(model), settings.tool_choice
    fields: Object = {"stream_options": {"include_usage": True}}
    fields |= {name: value for name, value in settings.given() if name in _SAME_NAMES}
    if settings.max_tokens:
        fields[provider.max_tokens_field] = settings.max_tokens
    if settings.effort and provider.effort:
        is_nested = provider.effort == "reasoning"
        fields[provider.effort] = {"effort": settings.effort} if is_nested else settings.effort
    if choice:
        fields["tool_choice"] = choice if choice in TOOL_CHOICES else _function({"name": choice})
    if request.output and (format_ := _response_format(request.output)):
        fields["response_format"] = format_
    fields = {name: value for name, value in fields.items() if name not in entry.omit}
    fields |= settings.extra_body or {}
    if not tools or choice not in (None, *TOOL_CHOICES, *tools):
        fields = {name: value for name, value in fields.items() if name not in OF_TOOLS}
    fields |= {"model": model, "messages": _messages(request.messages, provider, entry), "stream": True}
    if request.tools:
        fields["tools"] = [_function(tool.model_dump()) for tool in request.tools]
    return fields


def _function(function: Object) -> Object:
    return {"type": "function", "function": function}


def _response_format(output: OutputSchema) -> Object | None:
    """Return the shape of the answer. Not `strict`: OpenAI would accept only a part of JSON schema."""
    match output.by:
        case "json_schema":
            named = {"name": output.name, "schema": {**output.schema}, "strict": False}
            return {"type": "json_schema", "json_schema": named}
        case "json_object":
            return {"type": "json_object"}
        case _:
            return None


def _messages(
    messages: Sequence[Mapping[str, JsonValue]], provider: Provider, entry: ModelEntry
) -> list[Object]:
    sent: list[Object] = []
    is_begun = False
    for message in messages:
        is_begun |= message["role"] != "system"
        if message["role"] == "system" and is_begun:
            message = {**message, "role": provider.late_system}  # noqa: PLW2901 -- from here on it is that
        is_refused = message["role"] == "user" and bool(sent) and sent[-1]["role"] == "tool"
        if is_refused and provider.reply_after_results:
            sent.append({"role": "assistant", "content": "[Results read.]"})
        sent.append(_with_opaque(message, entry.omit) if "opaque" in message else {**message})
    return _with_named_ids(sent) if entry.named_call_ids else sent


def _with_named_ids(messages: Sequence[Object]) -> list[Object]:
    """Return messages whose calls have ids such as `functions.search:0`, numbered from the first one on."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    ids = {call["id"]: f"functions.{call['function']['name']}:{number}" for number, call in enumerate(calls)}
    named: list[Object] = []
    for message in messages:
        changed = {**message}
        if "tool_calls" in message:
            changed["tool_calls"] = [{**call, "id": ids[call["id"]]} for call in message["tool_calls"]]
        if message["role"] == "tool":
            changed["tool_call_id"] = ids.get(message["tool_call_id"], message["tool_call_id"])
        named.append(changed)
    return named


def _with_opaque(message: Mapping[str, JsonValue], omit: frozenset[str]) -> Object:
    """Return an assistant message with its opaque fields at their places."""
    made = {name: value for name, value in message.items() if name != "opaque"}
    opaque = cast("Object", message["opaque"])
    fields = {name: value for name, value in opaque.get("fields", {}).items() if name not in omit}
    if "content" in fields:
        fields["content"] = _rewritten(fields["content"], made.get("content"))
    if calls := cast("list[Object] | None", made.get("tool_calls")):
        made["tool_calls"] = [_call_with_opaque(call) for call in calls]
    return {**made, **fields}


def _call_with_opaque(call: Object) -> Object:
    return {**{name: value for name, value in call.items() if name != "opaque"}, **call.get("opaque", {})}


def _rewritten(parts: Sequence[Object], text: JsonValue) -> list[Object]:
    """Return the original parts of a content, with the text that a plugin has changed."""
    if _text_of_parts(parts) == (text or ""):
        return [*parts]
    others = [part for part in parts if part.get("type") != "text"]
    return [*others, {"type": "text", "text": text}] if text else others


# A reply, chunk by chunk.

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


class ChatReader:
    """Reads the chunks of one reply, and collects its opaque fields."""

    def __init__(self) -> None:
        self._reason = ""
        self._model = ""
        self._id = ""
        self._usage: Object = {}
        self._has_text = self._has_refusal = False
        self._content: list[Object] | None = None
        self._text: list[str] = []
        self._fields: Object = {}
        self._texts: dict[str, list[str]] = {}
        self._size = 0
        """Size of opaque fields in characters; above the limit, no more is added."""
        self._thought: list[str] = []
        self._calls: list[Object] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self._call_of_id: dict[str, int] = {}
        self._call_at_index: dict[int, int] = {}
        self._has_id: set[int] = set()

    def read(self, chunk: Object) -> Iterator[Delta]:
        """Yield the deltas of a chunk."""
        self._id = chunk.get("id") or self._id
        self._model = chunk.get("model") or self._model
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            # Some servers send a complete reply as the only event of a stream.
            if delta := choice.get("delta", choice.get("message")):
                yield from self._add(delta)
            if (reason := choice.get("finish_reason") or "") not in _NOTHING:
                self._reason = reason

    def read_whole(self, completion: Object) -> Iterator[Delta]:
        """Yield the deltas of a completion that was not streamed."""
        choices: list[Object] = []
        for choice in completion["choices"]:
            message: Object = {**choice["message"]}
            if calls := message.get("tool_calls"):  # each is complete, whatever its id
                message["tool_calls"] = [
                    {**call, "index": index, "id": None} for index, call in enumerate(calls)
                ]
            choices.append({**choice, "delta": message})
        yield from self.read({**completion, "choices": choices})

    @property
    def is_empty(self) -> bool:
        """Whether neither an answer, a call nor a finish reason has arrived."""
        return not (self._has_text or self._has_refusal or self._names or self._reason)

    def end(self, *, is_done: bool) -> Ended:
        """Return the end of the reply; `is_done`: the provider has ended it, with or without a reason.

        Raises:
            ModelDownError: it was cut, or the provider reported an interruption.
        """
        reason = self._reason.lower().partition(":")[0].strip()
        if reason in _BROKEN_OFF:
            raise ModelDownError(f"the provider broke its reply off ({reason})")
        if not (reason or is_done):
            raise ModelDownError("the stream ended before the reply was finished")
        meant = _REASONS.get(reason) or ("tool_calls" if self._names and not reason else "stop")
        if self._has_refusal and not self._names and meant == "stop":
            meant = "refusal"
        usage = read_usage(self._usage, "prompt", "completion")
        return Ended(meant, str(self._model), str(self._id), usage, self._opaque())

    def _add(self, delta: Object) -> Iterator[Delta]:
        if thought := self._thought_of(delta):
            self._thought.append(thought)
            yield ThoughtDelta(thought)
        if content := delta.get("content"):
            yield from self._add_text(content) if isinstance(content, str) else self._add_parts(content)
        if refusal := delta.get("refusal"):
            self._has_refusal = True
            yield RefusalDelta(refusal)
        for fragment in delta.get("tool_calls") or ():
            yield from self._add_fragment(fragment)
        if function := delta.get("function_call"):  # the older form of calls, one per reply
            yield from self._add_fragment({"index": 0, "function": function})
        if delta.keys() - _KNOWN:
            self._keep_fields({name: value for name, value in delta.items() if name not in _KNOWN})

    def _keep_fields(self, extra: Object) -> None:
        """Store opaque fields of the message; texts come in pieces, and are joined in the end."""
        rest: Object = {}
        for name, value in extra.items():
            if isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            else:
                rest[name] = value
        if rest and self._size <= MAX_OPAQUE:
            self._size += merge(self._fields, without_flags(rest))

    @staticmethod
    def _thought_of(delta: Object) -> str:
        """Return the reasoning of a delta; several fields hold the same text."""
        for name in _REASONING:
            if isinstance(text := delta.get(name), str) and text:
                return text
        details: Sequence[Object] = delta.get(_DETAILS) or ()
        return "".join(each.get("text") or each.get("summary") or "" for each in details)

    def _add_text(self, text: str) -> Iterator[Delta]:
        self._has_text = True
        if self._content is None:
            self._text.append(text)
        else:
            self._keep_parts(self._content, [{"type": "text", "text": text}])
        yield TextDelta(text)

    def _add_parts(self, parts: Sequence[Object]) -> Iterator[Delta]:
        """Add content in the form of a list of parts; from then on all of it is stored in one list."""
        if self._content is None:
            before = "".join(self._text)
            self._content = [{"type": "text", "text": before}] if before else []
        self._keep_parts(self._content, parts)
        for part in parts:
            if part.get("type") == "text" and part.get("text"):
                self._has_text = True
                yield TextDelta(part["text"])
            elif text := _text_of_thinking(part):
                yield ThoughtDelta(text)

    def _keep_parts(self, whole: list[Object], parts: Sequence[Object]) -> None:
        if self._size <= MAX_OPAQUE:
            self._size += extend(whole, parts)

    def _add_fragment(self, fragment: Object) -> Iterator[Delta]:
        function: Object = fragment.get("function") or {}
        name: str = function.get("name") or ""
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # an object, already parsed
            arguments = json.dumps(arguments, ensure_ascii=False)
        number = self._number(fragment, name, arguments)
        extra = {key: value for key, value in fragment.items() if key not in _KNOWN_OF_CALLS}
        if extra and self._size <= MAX_OPAQUE:
            self._size += merge(self._calls[number], extra)
        self._arguments[number].append(arguments)
        if self._names[number]:  # later fragments repeat the name, or have an empty one
            name = ""
        self._names[number] += name
        if name or arguments or not self._names[number]:
            yield CallDelta(number, name, arguments)

    def _number(self, fragment: Object, name: str, arguments: str) -> int:
        """Return the number of the call that a fragment belongs to: ids take precedence over indexes.

        A name, or the beginning of an object, after a complete one starts another call.
        """
        index, id_ = fragment.get("index"), fragment.get("id")
        id_ = "" if id_ is None or id_ in _NOTHING else str(id_)
        if id_ in self._call_of_id:
            known = self._call_of_id[id_]
            is_another = False
        elif index is not None:
            known = self._call_at_index.get(index)
            is_another = known is None or (bool(id_) and known in self._has_id)
        else:
            known = len(self._names) - 1
            is_another = known < 0 or bool(id_ or name)
        is_new_place = index is not None and index not in self._call_at_index
        if known is not None and not is_another and name and (arguments.startswith("{") or is_new_place):
            written = "".join(self._arguments[known])
            is_another = (is_new_place or arguments != written) and is_object(written)
        number = len(self._names) if is_another or known is None else known
        if number == len(self._names):
            self._names.append("")
            self._arguments.append([])
            self._calls.append({})
        if id_:
            self._call_of_id[id_] = number
            self._has_id.add(number)
        if index is not None:
            self._call_at_index[index] = number
        return number

    def _opaque(self) -> Opaque:
        thought, name = "".join(self._thought), ""
        whole = {**{key: "".join(pieces) for key, pieces in self._texts.items()}, **self._fields}
        fields = {key: value for key, value in whole.items() if value not in ("", [], {})}
        if thought:
            same = [key for key in _REASONING if fields.get(key) == thought]
            # Its details hold the reasoning as well: providers with such a field need no other copy.
            name = same[0] if same and not fields.get(_DETAILS) else ""
            fields = {key: value for key, value in fields.items() if key not in same}
        if self._content and any(part.get("type") != "text" for part in self._content):
            fields["content"] = self._content
        calls = {number: call for number, call in enumerate(self._calls) if call}
        return Opaque(fields, calls, name)


# Content that is a list of parts.


def _text_of_parts(parts: Sequence[Object]) -> str:
    return "".join(part.get("text") or "" for part in parts if part.get("type") == "text")


def _text_of_thinking(part: Object) -> str:
    thinking = part.get("thinking")
    return thinking if isinstance(thinking, str) else _text_of_parts(thinking or ())


# The model.


class Chat(HttpModel):
    """A provider with Chat Completions."""

    path = "chat/completions"
    unreadable = ("answered with no Chat Completions stream", "answered with JSON that is no chat completion")

    def body(self, request: ModelRequest, model: str) -> Object:
        return chat_body(request, model, self.provider)

    def read(
        self, body: AsyncIterable[bytes], failures: Failures, *, is_whole: bool
    ) -> AsyncGenerator[Delta]:
        return (_read_whole if is_whole else _read)(body, failures)


async def _read(body: AsyncIterable[bytes], failures: Failures) -> AsyncGenerator[Delta]:
    reader, is_done = ChatReader(), False
    async with aclosing(read_events(body)) as events:
        async for kind, data in events:
            if kind == "data" and data.startswith(DONE):
                is_done = True
                await drain(events)
                break
            chunk = read_json(data)
            if error := chunk if kind == "error" else error_in(chunk):
                raise failures.of_answer(error)
            for delta in reader.read(chunk):
                yield delta
    if is_done and reader.is_empty:
        raise failures.unreadable("ended its stream with [DONE], without a reply")
    yield reader.end(is_done=is_done)


async def _read_whole(body: AsyncIterable[bytes], failures: Failures) -> AsyncGenerator[Delta]:
    completion: Any = json.loads(b"".join([piece async for piece in body]))
    if isinstance(error := error_in(completion), dict):
        raise failures.of_answer(cast("Object", error))
    reader = ChatReader()
    for delta in reader.read_whole(completion):
        yield delta
    if reader.is_empty:
        raise failures.unreadable("answered with a completion that holds no reply")
    yield reader.end(is_done=True)
