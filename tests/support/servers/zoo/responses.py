"""OpenAI's Responses API. Its replies fit the types of the `openai` package."""

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import JsonValue

from tests.support.servers.zoo.provider import (
    Fault,
    Framing,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    broken_stream,
    faulty,
    openai_error,
    pieces_of,
)
from tests.support.servers.zoo.responses_rules import BAD, FIXTURES, REFERENCE, judge, objects_of


def _failed(code: str, message: str, *, kind: str = BAD, is_nested: bool = True) -> tuple[str, str]:
    """Return the last two events of a reply that fails."""
    error: Object = {"type": kind, "code": code, "message": message, "param": None}
    told: Object = {"type": "error", "sequence_number": 2, "error": error}
    if not is_nested:
        told = {**error, "type": "error", "sequence_number": 2}
    response: Object = {"id": "resp_1", "object": "response", "status": "failed", "output": [], "usage": None}
    response["error"] = {"code": code, "message": message}
    failed: Object = {"type": "response.failed", "sequence_number": 3, "response": response}
    return _frame(told), _frame(failed)


def _frame(event: Object) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


class OpenAIResponses(Provider):
    """api.openai.com/v1/responses, without storage."""

    name = "openai"
    model = "gpt-5.1"
    framing = Framing(done="")
    quirks = (
        Quirk("a line event: before each data:", f"{FIXTURES}, aiproxy", "reported"),
        Quirk("no [DONE]: the last event is response.completed, incomplete or failed", FIXTURES),
        Quirk("an event keepalive while it thinks, which takes a number", "openai-node#1964", "reported"),
        Quirk(
            "random padding in deltas (obfuscation)", f"{FIXTURES}/issue-19493-gpt-5.1-tool-call.chunks.txt"
        ),
        Quirk(
            "encrypted_content differs from event to event: that of output_item.done counts",
            f"{FIXTURES}/openai-issue-11239.1.chunks.txt",
        ),
        Quirk("messages have a phase, which is to come back", f"{FIXTURES}/openai-phase.1.chunks.txt"),
        Quirk("a web search stands between two thoughts", f"{FIXTURES}/openai-web-search-tool.1.chunks.txt"),
        Quirk("all tokens for reasoning: no message at all", "labring/aiproxy, a test", "reported"),
        Quirk("a refusal is a part of a message (no recording is known)", REFERENCE, "documented"),
        Quirk("the default of strict is true", REFERENCE, "documented"),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        # Status 200, and then both an error with its fields in `error`, and a failed response.
        "quota in stream": broken_stream(
            "refused",
            f"{FIXTURES}/openai-error.1.chunks.txt",
            *_failed(
                "insufficient_quota",
                "You exceeded your current quota, please check your plan and billing details.",
                kind="insufficient_quota",
            ),
        ),
        "too long in stream": broken_stream(
            "too long",
            "dyad-sh/dyad#1672",
            *_failed(
                "context_length_exceeded",
                "Your input exceeds the context window of this model. Please adjust your input and try "
                "again.",
            ),
            evidence="reported",
        ),
        "overloaded in stream": broken_stream(
            "down",
            "a log in a public client",
            *_failed(
                "server_is_overloaded",
                "Our servers are currently overloaded. Please try again later.",
                kind="service_unavailable_error",
            ),
            evidence="reported",
        ),
        "failed alone": broken_stream(
            "busy",
            f"{FIXTURES}/openai-response-failed-only.1.chunks.txt",
            _failed("rate_limit_exceeded", "Rate limit reached for gpt-5.1. Please try again in 1s.")[1],
            evidence="reported",
        ),
        "error as in the reference": broken_stream(
            "down",
            REFERENCE,
            _failed("server_error", "Something went wrong", kind="error", is_nested=False)[0],
            evidence="documented",
        ),
        "error without a code": broken_stream(
            "down",
            f"{FIXTURES}/openai-error-null-code.1.chunks.txt",
            'event: error\ndata: {"type":"error","error":{"type":"server_error","code":null,"message":'
            '"Sorry, something went wrong.","param":null},"sequence_number":2}\n\n',
        ),
        "busy": faulty(
            "busy",
            "https://developers.openai.com/api/docs/guides/rate-limits",
            429,
            openai_error("Rate limit reached for gpt-5.1.", "requests", None, "rate_limit_exceeded"),
            headers={"retry-after": "7"},
            evidence="documented",
        ),
        "prompt": broken_stream(
            "refused",
            REFERENCE,
            _failed("invalid_prompt", "Invalid prompt: your prompt was flagged.")[1],
            evidence="documented",
        ),
    }

    def judge(self, body: Object) -> None:
        judge(body, [_output(given) for given in self.given])

    # The played events.

    secret: str = ""
    """A word in its encrypted content; if set, it thinks, even without a visible thought."""

    def cast(self, played: Played, body: Object) -> Played:
        self._searches = any(tool["type"] == "web_search" for tool in objects_of(body.get("tools")))
        self._regret(objects_of(body["input"]))
        return played

    def _regret(self, items: Sequence[Object]) -> None:
        """Record missing items of earlier replies, without which the model has to think again."""
        kept = [item.get("encrypted_content") for item in items if item.get("type") == "reasoning"]
        phases = [item["phase"] for item in items if "phase" in item]
        whole = [given for given in self.given if not given.reply.reason]
        for given in whole:  # a reply that was cut off is continued in other ways
            for item in _output(given):
                if item["type"] == "reasoning" and item["encrypted_content"] not in kept:
                    self.regrets.append("reasoning")
                if item.get("phase") and item["phase"] not in phases:
                    self.regrets.append("phase")

    def prepare(self, played: Played) -> Given:
        given = super().prepare(played)
        return Given(played, given.ids, {"output": [*self._items(played, given.ids)]})

    def _items(self, played: Played, ids: Sequence[str]) -> list[Object]:
        """Return the items of a reply in their completed form."""
        number = len(self.given)
        items: list[Object] = []
        if played.thought or self.secret:
            items.append(_thought(f"rs_{number}0", played.thought, self.secret))
        if self._searches:
            action: Object = {"type": "search", "query": "Köln", "queries": ["Köln"]}
            action["sources"] = [{"type": "url", "url": "https://example.com/koeln"}]
            search: Object = {"id": f"ws_{number}", "type": "web_search_call", "status": "completed"}
            search |= {"action": action}
            items += [search, _thought(f"rs_{number}1", "")]
        status = "incomplete" if played.reason else "completed"
        if played.text or played.refusal:
            part: Object = {"type": "output_text", "annotations": [], "logprobs": [], "text": played.text}
            if played.refusal:
                part = {"type": "refusal", "refusal": played.refusal}
            phase = "commentary" if played.calls else "final_answer"
            message: Object = {"id": f"msg_{number}", "type": "message", "status": status, "content": [part]}
            items.append({**message, "phase": phase, "role": "assistant"})
        for id_, (name, arguments) in zip(ids, played.calls, strict=True):
            call: Object = {"id": f"fc_{id_}", "type": "function_call", "status": "completed"}
            items.append({**call, "arguments": arguments, "call_id": id_, "name": name})
        return items

    def play(self, given: Given, body: Object) -> list[Object | str]:
        began = self._response(body, "in_progress", [])
        events: list[Object] = [
            {"type": "response.created", "response": began},
            {"type": "response.in_progress", "response": began},
            {"type": "keepalive"},
        ]
        for index, item in enumerate(_output(given)):
            events += self._events_of(index, item)
        if not given.reply.cut:
            status = "incomplete" if given.reply.reason else "completed"
            whole = self._response(body, status, _output(given), given.reply)
            events.append({"type": f"response.{status}", "response": whole})
        return [_frame({**event, "sequence_number": number}) for number, event in enumerate(events)]

    def _events_of(self, index: int, item: Object) -> list[Object]:
        """Return the events of one item, which starts empty."""
        at: Object = {"item_id": item["id"], "output_index": index}
        began: Object = {**item, "status": "in_progress"}
        inner: list[Object] = []
        match item["type"]:
            case "reasoning":
                began = {**item, "encrypted_content": "gAAAAABadded", "summary": []}
                for place, part in enumerate(objects_of(item["summary"])):
                    inner += _spoken("response.reasoning_summary_part", {**at, "summary_index": place}, part)
            case "message":
                began["content"] = []
                inner = _spoken(
                    "response.content_part", {**at, "content_index": 0}, objects_of(item["content"])[0]
                )
            case "function_call":
                began["arguments"] = ""
                kind = "response.function_call_arguments"
                inner = [
                    {**at, "type": f"{kind}.delta", **_padded(p)} for p in pieces_of(str(item["arguments"]))
                ]
                done: Object = {"arguments": item["arguments"], "name": item["name"]}
                inner.append({**at, "type": f"{kind}.done", **done})
            case _:
                began["action"] = {"type": "search"}
                steps = ("in_progress", "searching", "completed")
                inner = [{**at, "type": f"response.web_search_call.{step}"} for step in steps]
        added: Object = {"type": "response.output_item.added", "output_index": index, "item": began}
        return [added, *inner, {"type": "response.output_item.done", "output_index": index, "item": item}]

    def _response(
        self, body: Object, status: str, output: Sequence[Object], reply: Played | None = None
    ) -> Object:
        """Return the response in its present state; encrypted content differs each time."""
        shown: list[JsonValue] = [
            {**item, "encrypted_content": "gAAAAABcompleted"} if item["type"] == "reasoning" else item
            for item in output
        ]
        reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
        details: JsonValue = {"reason": reasons[reply.reason]} if reply and reply.reason else None
        return {
            "id": f"resp_{len(self.given)}",
            "object": "response",
            "created_at": 1793000000,
            "status": status,
            "error": None,
            "incomplete_details": details,
            "instructions": None,
            "metadata": {},
            "model": f"{body['model']}-2026-11-01",
            "output": shown,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "reasoning": {"effort": "medium", "summary": None},
            "service_tier": "default",
            "store": body.get("store", True),
            "temperature": 1.0,
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "top_p": 1.0,
            "usage": _usage(reply) if reply else None,
        }


def _thought(id_: str, text: str, secret: str = "") -> Object:
    """Return reasoning, without a summary if there is no text."""
    summary: list[JsonValue] = [{"type": "summary_text", "text": part} for part in text.split("\n\n") if part]
    sealed = f"gAAAAAB{id_}{secret}"
    # A status is sent, and refused when sent back (jcode#1028).
    return {
        "id": id_,
        "type": "reasoning",
        "encrypted_content": sealed,
        "summary": summary,
        "status": "completed",
    }


def _spoken(kind: str, at: Object, part: Object) -> list[Object]:
    """Return the events of a part of a message or of a summary."""
    field = "refusal" if part["type"] == "refusal" else "text"
    event = {"summary_text": "reasoning_summary_text", "output_text": "output_text", "refusal": "refusal"}
    name = f"response.{event[str(part['type'])]}"
    extra: Object = {"logprobs": []} if part["type"] == "output_text" else {}
    whole = str(part[field])
    return [
        {**at, "type": f"{kind}.added", "part": {**part, field: ""}},
        *({**at, **extra, "type": f"{name}.delta", **_padded(piece)} for piece in pieces_of(whole)),
        {**at, **extra, "type": f"{name}.done", field: whole},
        {**at, "type": f"{kind}.done", "part": part},
    ]


def _padded(piece: str) -> Object:
    return {"delta": piece, "obfuscation": "x" * (16 - len(piece))}


def _usage(reply: Played) -> Object:
    sent, written = reply.usage
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": sent // 2},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": written // 2},
        "total_tokens": sent + written,
    }


def _output(given: Given) -> list[Object]:
    return objects_of(given.opaque["output"])
