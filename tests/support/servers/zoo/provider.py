"""Common parts of the zoo's providers: a script, a judge of requests, and frames byte for byte.

A provider of the zoo is a script of `ScriptedOpenAI`: `model_rig(DeepSeek(Played(text="Hi")))`. It refuses
the requests that the real one refuses, in the same words, and plays its replies with the same quirks. Each
quirk, refusal and failure names its source, as a URL or as owner/repository#number on GitHub; `Evidence` is
its quality.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NoReturn

from pydantic import JsonValue

from tests.support.seeded_secrets import seed_json
from tests.support.servers.scripted_openai import Answer, ReceivedRequest, Wire

Object = dict[str, JsonValue]

Evidence = Literal["recorded", "source", "reported", "documented", "assumed"]
"""Recorded bytes; the source of the server; an issue; the manual; a guess from similar servers."""

Means = Literal["busy", "down", "unreadable", "refused", "too long", "filtered"]
"""The classification of a failure, in any form.

"unreadable": no reply, and no error of the API either. "filtered": the prompt, or a part of the reply.
"""


@dataclass(frozen=True)
class Played:
    """The model's reply, independent of providers.

    `calls` are names and arguments; `usage` is (input, output) tokens. `reason`: empty follows from the other
    fields. `cut`: the connection is lost before the end.
    """

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    refusal: str = ""
    reason: Literal["", "length", "content_filter"] = ""
    usage: tuple[int, int] = (7, 3)
    cut: bool = False

    @property
    def words(self) -> str:
        """The answer, or a refusal in the form of one."""
        return self.text or self.refusal

    @property
    def ending(self) -> str:
        """The finish reason, as OpenAI gives it."""
        return self.reason or ("tool_calls" if self.calls else "stop")


@dataclass(frozen=True)
class Quirk:
    """A behaviour of a provider beyond the letter of the API."""

    what: str
    source: str
    evidence: Evidence = "recorded"


@dataclass(frozen=True)
class Fault:
    """A failure of the provider, byte for byte, and its source."""

    means: Means
    source: str
    wire: Wire
    evidence: Evidence = "recorded"


def faulty(  # noqa: PLR0913 -- the parts of an HTTP answer
    means: Means,
    source: str,
    status: int,
    body: JsonValue,
    *,
    headers: Mapping[str, str] | None = None,
    evidence: Evidence = "recorded",
) -> Fault:
    """Return the failure of an HTTP error; a text as body is sent unchanged."""
    if isinstance(body, str):
        return Fault(means, source, Wire([body.encode()], status, headers or {}), evidence)
    wire = Wire([json.dumps(body).encode()], status, {"content-type": "application/json", **(headers or {})})
    return Fault(means, source, wire, evidence)


def broken_stream(means: Means, source: str, *frames: str, evidence: Evidence = "recorded") -> Fault:
    """Return the failure inside a stream that started well."""
    return Fault(means, source, Wire([frame.encode() for frame in frames]), evidence)


class RefusedError(Exception):
    """A request that the real provider refuses. `body` is its answer, `source` the evidence."""

    def __init__(self, status: int, body: JsonValue, source: str) -> None:
        super().__init__(json.dumps(body))
        self.source = source
        self.wire = Wire([json.dumps(body).encode()], status, {"content-type": "application/json"})


@dataclass(frozen=True)
class Framing:
    """The layout of a stream in bytes.

    `comment` is a line before the events and between them; `piece` is the number of bytes in a write (0:
    event by event); `done` ends the stream; `is_compact` leaves out the spaces of JSON. Characters beyond
    ASCII are not escaped, so that pieces cut them.
    """

    newline: str = "\n"
    label: str = "data: "
    comment: str | None = None
    piece: int = 0
    done: str = "data: [DONE]\n\n"
    is_compact: bool = True

    def wire(self, events: Sequence[Object | str], *, is_cut: bool = False) -> Wire:
        """Return the answer; a text as event is sent unchanged."""
        frames = [event if isinstance(event, str) else self._frame(event) for event in events]
        if self.comment is not None:
            frames = [part for frame in frames for part in (f"{self.comment}\n\n", frame)]
        if not is_cut:
            frames.append(self.done)
        written = [frame.replace("\n", self.newline).encode() for frame in frames]
        if self.piece:
            whole = b"".join(written)
            written = [whole[start : start + self.piece] for start in range(0, len(whole), self.piece)]
        return Wire(written, is_cut=is_cut)

    def _frame(self, event: Object) -> str:
        separators = (",", ":") if self.is_compact else (", ", ": ")
        return f"{self.label}{json.dumps(event, ensure_ascii=False, separators=separators)}\n\n"


@dataclass(frozen=True)
class Given:
    """A played reply.

    The `ids` of its calls, and the fields that have to be sent back, by call and besides.
    """

    reply: Played
    ids: tuple[str, ...]
    opaque: Object = field(default_factory=dict[str, JsonValue])
    of_calls: tuple[Object, ...] = ()

    def message(self) -> Object:
        """Return the reply in the form that the next request must have."""
        message: Object = {"role": "assistant", "content": self.reply.text or None, **self.opaque}
        if self.reply.calls:
            nothing = tuple(dict[str, JsonValue]() for _ in self.ids)
            extras = self.of_calls or nothing
            message["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}, **extra}
                for id_, (name, arguments), extra in zip(self.ids, self.reply.calls, extras, strict=True)
            ]
        return message


class Provider(ABC):
    """A provider of models: judges each request, and plays the next of its script.

    `regrets` are missing parts of accepted requests, without which the real one answers worse.
    """

    name: ClassVar[str]
    model: ClassVar[str]
    """The model of a rig by default."""
    quirks: ClassVar[Sequence[Quirk]] = ()
    faults: ClassVar[Mapping[str, Fault]] = {}
    framing: ClassVar[Framing] = Framing()

    def __init__(self, *script: Played | Fault, framing: Framing | None = None) -> None:
        self.script = list(script)
        self.given: list[Given] = []
        self.regrets: list[str] = []
        self._framing = framing or self.framing

    def __call__(self, received: ReceivedRequest) -> Answer:
        body = received.body
        try:
            self.judge(body)
        except RefusedError as refused:
            return refused.wire
        played = self.script.pop(0)
        if isinstance(played, Fault):
            return played.wire
        played = self.cast(played, body)
        given = self.prepare(played)
        self.given.append(given)
        seed_json([played.text, played.thought, *(arguments for _, arguments in played.calls)])
        return self._framing.wire(self.play(given, body), is_cut=played.cut)

    def cast(self, played: Played, body: Object) -> Played:
        """Return the part of a reply that the request allows."""
        return played

    def prepare(self, played: Played) -> Given:
        """Return the reply with ids and other invented fields of this provider."""
        number = len(self.given)
        return Given(played, tuple(f"call_{number:02}{call:02}Zq7Lk" for call in range(len(played.calls))))

    @abstractmethod
    def judge(self, body: Object) -> None:
        """Refuse the requests that the real provider refuses.

        Raises:
            RefusedError: It refuses.
        """

    @abstractmethod
    def play(self, given: Given, body: Object) -> list[Object | str]:
        """Return the events of a reply, without the last one, which the framing adds."""


# Parts of a request that judges read.


def messages_of(body: Object) -> list[Object]:
    """Return the messages of a request."""
    messages = body["messages"]
    assert isinstance(messages, list)
    return [message for message in messages if isinstance(message, dict)]


def calls_of(message: Object) -> list[Object]:
    """Return the tool calls of a message."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def function_of(call: Object) -> Object:
    """Return the function of a call."""
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def asking_messages(body: Object) -> list[tuple[int, Object]]:
    """Return the assistant messages with tool calls, each with its index."""
    return [(place, message) for place, message in enumerate(messages_of(body)) if calls_of(message)]


def unanswered_calls(body: Object) -> list[str]:
    """Return the ids of the calls whose results do not follow directly."""
    messages = messages_of(body)
    missing: list[str] = []
    for place, message in asking_messages(body):
        wanted = [str(call.get("id")) for call in calls_of(message)]
        answers: list[str] = []
        for later in messages[place + 1 :]:
            if later["role"] != "tool":
                break
            answers.append(str(later.get("tool_call_id")))
        missing += [id_ for id_ in wanted if id_ not in answers]
    return missing


def lost_result(body: Object) -> int | None:
    """Return the index of the first result without an earlier call."""
    asked: set[str] = set()
    for place, message in enumerate(messages_of(body)):
        if message["role"] == "tool":
            if str(message.get("tool_call_id")) not in asked:
                return place
        else:
            asked = {str(call.get("id")) for call in calls_of(message)}
    return None


def blank_message(body: Object) -> int | None:
    """Return the index of the first message with a blank text."""
    for place, message in enumerate(messages_of(body)):
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        if any(isinstance(text, str) and not text.strip() for text in texts):
            return place
    return None


def has_late_system(body: Object) -> bool:
    """Return True if a system prompt is not the first message."""
    return any(message["role"] == "system" for message in messages_of(body)[1:])


def is_asked_for_usage(body: Object) -> bool:
    """Return True if the client requests usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def is_forced(body: Object) -> bool:
    """Return True if the model has to call a tool."""
    return body.get("tool_choice") not in {None, "auto", "none"} if is_text(body.get("tool_choice")) else True


def is_text(value: JsonValue) -> bool:
    """Return True if a value can be compared with words: None counts as one."""
    return value is None or isinstance(value, str)


def is_json_object(text: JsonValue) -> bool:
    """Return True if the text is a JSON object."""
    try:
        return isinstance(json.loads(str(text), parse_constant=_refuse_constant), dict)
    except ValueError:
        return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def loaded(text: str) -> JsonValue:
    """Return the value of a JSON text."""
    value: JsonValue = json.loads(text)
    return value


def usage_of(reply: Played) -> Object:
    """Return the tokens of a reply, as OpenAI counts them."""
    sent, written = reply.usage
    return {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}


def pieces_of(text: str, size: int = 5) -> list[str]:
    """Cut a text into a few pieces, as models write it."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def in_pieces(name: str, text: str) -> list[Object]:
    """Return deltas with a text in a few pieces, in one of their fields."""
    return [{name: piece} for piece in pieces_of(text)]


def calling(*fragments: Object) -> Object:
    """Return a delta with pieces of tool calls."""
    return {"tool_calls": [*fragments]}


def calls_in_pieces(given: Given) -> list[Object]:
    """Return the deltas of tool calls in OpenAI's form: a name, and then pieces of the arguments."""
    deltas: list[Object] = []
    for index, (id_, (name, arguments)) in enumerate(zip(given.ids, given.reply.calls, strict=True)):
        function: Object = {"name": name, "arguments": ""}
        deltas.append(calling({"index": index, "id": id_, "type": "function", "function": function}))
        deltas += [
            calling({"index": index, "function": {"arguments": piece}}) for piece in pieces_of(arguments)
        ]
    return deltas


def openai_error(message: str, kind: str | None, param: str | None = None, code: JsonValue = None) -> Object:
    """Return an error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refuse(status: int, body: JsonValue, source: str) -> NoReturn:
    """Refuse the request.

    Raises:
        RefusedError: always.
    """
    raise RefusedError(status, body, source)
