"""Streams that deviate slightly from the specifications, as of real servers and gateways."""

import json
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from everloop.workflows.contract.failures import MODEL_REFUSED, MODEL_UNAVAILABLE
from tests.support.rigs.model_rig import model_rig
from tests.support.servers.scripted_openai import Wire

Object = dict[str, JsonValue]

EVENTS, JSON = "text/event-stream", "application/json"
A, B = '{"query":"a"}', '{"query":"b"}'


def said(text: JsonValue, reason: str | None = "stop", **more: JsonValue) -> Object:
    """Return the only chunk of a complete reply."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}], **more}


def asked(index: int | None, id_: str | None, query: str, name: str | None = "search") -> Object:
    """Return the chunk of a tool call."""
    function: Object = {"name": name, "arguments": query}
    call: Object = {"index": index, "id": id_, "type": "function", "function": function}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


def streamed(
    *chunks: JsonValue, head: bytes = b"", kind: str = EVENTS, done: str = "data: [DONE]\n\n"
) -> Wire:
    written = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + done
    return Wire([head + written.encode()], headers={"content-type": kind})


def whole(body: JsonValue, kind: str) -> Wire:
    return Wire([b"\n\n", json.dumps(body).encode()], headers={"content-type": kind})


MESSAGE: Object = {"role": "assistant", "content": "Hi"}
COMPLETION: Object = {"choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]}
RESPONSE: Object = {
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}],
}
ANSWERED: Object = {"type": "response.completed", "response": RESPONSE}

ANSWERS: dict[str, tuple[Wire, str]] = {
    "a byte order mark": (streamed(said("Hi"), head=b"\xef\xbb\xbf"), "chat"),
    "events that are called JSON, vllm-ascend PR 5033": (streamed(said("Hi"), kind=JSON), "chat"),
    "comments first, called JSON": (streamed(said("Hi"), head=b": ping\n\n", kind=JSON), "chat"),
    "JSON that is called events, sub2api#1311": (whole(COMPLETION, EVENTS), "chat"),
    "JSON that is called a text": (whole(COMPLETION, "text/plain"), "chat"),
    "a completion as the only event": (streamed(COMPLETION), "chat"),
    "no text in a part": (streamed(said([{"type": "text", "text": None}], None), said("Hi")), "chat"),
    "events of the other API that are called JSON, metapi PR 177": (
        streamed(ANSWERED, kind=JSON, done=""),
        "responses",
    ),
    "a response that is called events": (whole(RESPONSE, EVENTS), "responses"),
}


@pytest.mark.parametrize(("wire", "kind"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_read_whatever_it_is_called(wire: Wire, kind: str) -> None:
    """The format of an answer is recognized by its first bytes, not by its content type."""
    async with model_rig([wire], kind=kind) as rig:
        reply = await rig.run()
        assert await rig.answer() == ("Hi", True)
    assert reply.text == "Hi"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7.0, "completion_tokens": 3.5}, (7, 3)),
        ({"prompt_tokens": 7, "completion_tokens": "3", "total_tokens": None}, (7, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 3}, (0, 3)),
    ],
)
async def test_no_reply_is_lost_for_its_counts(usage: JsonValue, tokens: tuple[int, int]) -> None:
    """An invalid token count counts nothing, and the reply stands."""
    async with model_rig([streamed(said("Hi", usage=usage))]) as rig:
        reply = await rig.run()
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == tokens


BROKEN: Mapping[str, Wire] = {
    "cut behind a reason that is the text null, koboldcpp": streamed(said("Hi", "null"), done=""),
    "a reason that is none, docs.z.ai": streamed(said("Hi", "network_error")),
}


@pytest.mark.parametrize("wire", BROKEN.values(), ids=BROKEN)
async def test_half_a_reply_is_no_answer(wire: Wire) -> None:
    """An incomplete reply is an error that is retried."""
    async with model_rig([wire]) as rig:
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)


def item(kind: str, **fields: JsonValue) -> Object:
    """Return the event of a completed item of the Responses API."""
    return {"type": "response.output_item.done", "item": {"type": kind, "id": "i", **fields}}


NO_TEXTS: dict[str, tuple[Wire, str]] = {
    "a refusal": (streamed({"choices": [{"delta": {"refusal": {"why": "no"}}}]}), "chat"),
    "a part": (streamed(said([{"type": "text", "text": {"value": "Hi"}}])), "chat"),
    "an item": (streamed(item("message", content=[{"type": "output_text", "text": ["Hi"]}])), "responses"),
    "arguments": (streamed(item("function_call", name="search", arguments={"query": "a"})), "responses"),
}


@pytest.mark.parametrize(("wire", "kind"), NO_TEXTS.values(), ids=NO_TEXTS)
async def test_what_is_no_text_is_no_reply(wire: Wire, kind: str) -> None:
    """A text of another type is an invalid reply, which is counted, so that the call ends."""
    async with model_rig([wire], kind=kind) as rig:
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert "something else than text" in failure.message


def begun(kind: str, **fields: JsonValue) -> Object:
    """Return the event of a started item of the Responses API."""
    return {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": kind, "id": "i", **fields},
    }


async def test_a_text_may_come_at_once() -> None:
    """A text may come without deltas and without the end of its item, see sglang#12652."""
    done: Object = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": A}
    ended: Object = {"type": "response.completed", "response": {"status": "completed"}}
    finished = {**item("function_call", name="search", arguments=A), "output_index": 0}
    for events in ([done, ended], [done, finished, ended], [finished, done, ended]):
        wire = streamed(begun("function_call", name="search", arguments=""), *events, done="")
        async with model_rig([wire], kind="responses") as rig:
            [call] = (await rig.run()).tool_calls
        assert (call.name, call.arguments) == ("search", A)


@pytest.mark.parametrize("body", [{"choices": []}, {"choices": [{"message": {"content": None}}]}])
async def test_a_completion_of_nothing_is_no_reply(body: JsonValue) -> None:
    """An empty completion is retried without a message to the model."""
    async with model_rig([whole(body, JSON)]) as rig:
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert "without a reply" in failure.message


async def test_names_may_be_numbers() -> None:
    """Names of the model and of the reply may be numbers."""
    async with model_rig([streamed(said("Hi", model=7, id=8))]) as rig:
        assert (await rig.run()).model == "7"


async def test_an_error_in_the_place_of_events_is_read() -> None:
    """An error in the place of events is classified by its code."""
    error: Object = {"error": {"message": "wrong", "type": "invalid_request_error", "code": 401}}
    async with model_rig([whole(error, EVENTS)]) as rig:
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (MODEL_REFUSED, True)


CALLS: dict[str, tuple[list[Object], list[str]]] = {
    "all at index 0, without ids, gcli2api PR 406": ([asked(0, None, A), asked(0, None, B)], [A, B]),
    "one id for all, nanobot PR 3943 (DeepSeek, GLM)": ([asked(0, "x", A), asked(1, "x", B)], [A, B]),
    "one id and one index for all, hass_local_openai_llm PR 92": (
        [asked(0, "x", A), asked(0, "x", B)],
        [A, B],
    ),
    "one id for all, in pieces": (
        [asked(0, "x", ""), asked(0, None, A, None), asked(1, "x", ""), asked(1, None, B, None)],
        [A, B],
    ),
    "name and id in each piece": ([asked(0, "x", A[:5]), asked(0, "x", A[5:]), asked(0, "x", "")], [A]),
    "an object within an object": (
        [asked(0, "x", '{"query":'), asked(0, "x", '{"a":1}}')],
        ['{"query":{"a":1}}'],
    ),
    "null for none": ([asked(0, "x", "null")], [""]),
    "a text in the place of an object, quarkus-langchain4j#2569": ([asked(0, "x", json.dumps(A))], [A]),
    "a text that is none": ([asked(0, "x", '"query"')], ['"query"']),
}


@pytest.mark.parametrize(("chunks", "arguments"), CALLS.values(), ids=CALLS)
async def test_calls_are_told_apart(chunks: list[Object], arguments: list[str]) -> None:
    """Calls are told apart with any ids, indexes and forms of arguments."""
    async with model_rig([streamed(*chunks, said("", "tool_calls"))]) as rig:
        reply = await rig.run()
    assert [call.arguments for call in reply.tool_calls] == arguments
    assert {call.name for call in reply.tool_calls} == {"search"}
