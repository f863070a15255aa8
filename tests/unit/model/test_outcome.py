"""The outcome of a reply by its end, and the effects of an agent's settings."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel

from everloop.activities.model.outcome import continuation, joined, judge
from everloop.models.interface import ModelRequest, OutputSchema
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    ToolCall,
    TranscriptMessage,
    Usage,
    UserMessage,
)

CUT, FILTERED, DECLINED, EMPTY = (
    failures.REPLY_CUT,
    failures.CONTENT_FILTERED,
    failures.MODEL_DECLINED,
    failures.EMPTY_REPLY,
)
Fate = Literal["stands", "told", "fails", "rejected"]


class City(BaseModel):
    """A city."""

    name: str


def user(message_id: str, text: str = "Hi") -> UserMessage:
    """A message of the client; without an id, a note to the model."""
    return UserMessage(message_id=message_id, parts=(TextPart(text=text),))


def called(name: str, arguments: str) -> ToolCall:
    return ToolCall(id=name, name=name, arguments=arguments)


WHOLE, HALF = called("look", '{"at": "it"}'), called("write", '{"text": "On')
ASKED = (user("m"),)
WROTE = (*ASKED, AssistantMessage(tool_calls=(WHOLE,)), WHOLE.result("done", artifacts=("doc",)))


def told(reason: str, *behind: TranscriptMessage) -> tuple[TranscriptMessage, ...]:
    """A transcript whose last reply was refused for a reason."""
    return (*ASKED, AssistantMessage(refused="…", reason=reason), user("", "[…]"), *behind)


def reply(ended: str, text: str = "", *calls: ToolCall, **fields: Any) -> AssistantMessage:  # noqa: ANN401 -- a table
    return AssistantMessage(
        text=text, tool_calls=calls, finish_reason=ended, usage=Usage(output_tokens=9), **fields
    )


def fate(judged: AssistantMessage) -> Fate:
    """Return the outcome of a reply; there is exactly one."""
    assert [bool(judged.refused), judged.fails, judged.rejects].count(True) <= 1
    if judged.refused:
        return "told"
    if judged.fails:
        return "fails"
    return "rejected" if judged.rejects else "stands"


Transcript = tuple[TranscriptMessage, ...]
Row = tuple[AssistantMessage, Fate, str, str, Transcript, ModelSettings]


def row(
    ended: AssistantMessage,
    fate: Fate,
    reason: str,
    said: str,
    after: Transcript = ASKED,
    **settings: Any,  # noqa: ANN401 -- a table
) -> Row:
    """Return a reply and its outcome after this transcript, with these settings."""
    return ended, fate, reason, said, after, ModelSettings(**settings)


LIMIT = "at the model's limit, after 9 tokens"
ALL_THOUGHT = "the model used all 9 tokens for thinking; raise max_tokens"
BY_FILTER = "the provider's content filter stopped the reply"
TELLING = "within the call of write; nothing of it was run; write less"
ROWS: dict[str, Row] = {
    "well": row(reply("stop", "Hi."), "stands", "", ""),
    "calls, and stop": row(reply("stop", "", HALF), "stands", "", ""),
    "cut": row(reply("length", "Hi"), "stands", CUT, f"the answer was cut off {LIMIT}"),
    "cut, accepted": row(reply("length", "Hi"), "stands", CUT, f"cut off {LIMIT}", on_length="accept"),
    "cut, told": row(reply("length", "Hi"), "told", CUT, "; write less", on_length="tell"),
    "cut, told before": row(
        reply("length", "Hi"), "stands", CUT, "was cut off", after=told(CUT), on_length="tell"
    ),
    "cut, fails": row(reply("length", "Hi"), "fails", CUT, "raise max_tokens", on_length="fail"),
    "half a call": row(reply("length", "So", HALF), "told", CUT, TELLING, on_length="accept"),
    "half a call again": row(
        reply("length", "", HALF), "fails", CUT, f"the call of write {LIMIT}", after=told(CUT)
    ),
    "half a call behind a whole one": row(reply("length", "So", WHOLE, HALF), "stands", "", ""),
    "a call without arguments yet": row(reply("length", "", called("f", "")), "told", CUT, "call of f"),
    "thoughts": row(reply("length", reasoning="Hm"), "fails", CUT, ALL_THOUGHT),
    "thoughts, accepted": row(reply("length"), "stands", CUT, "for thinking", on_length="accept"),
    "filtered": row(reply("content_filter", "So", WHOLE), "fails", FILTERED, BY_FILTER),
    "filtered, told": row(
        reply("content_filter"), "told", FILTERED, "content filter stopped it", on_content_filter="tell"
    ),
    "filtered, told before": row(
        reply("content_filter"), "fails", FILTERED, BY_FILTER, after=told(FILTERED), on_content_filter="tell"
    ),
    "filtered, accepted": row(
        reply("content_filter", "So"), "stands", FILTERED, "content filter", on_content_filter="accept"
    ),
    "declined": row(reply("refusal", "I won't."), "rejected", DECLINED, "the model declined: I won't."),
    "declined without a word": row(reply("refusal"), "rejected", DECLINED, "gave no reason"),
    "declined, accepted": row(
        reply("refusal", "No."), "stands", DECLINED, "the model declined to answer", on_refusal="accept"
    ),
    "declined, fails": row(reply("refusal", "No."), "fails", DECLINED, "declined: No.", on_refusal="fail"),
    "empty": row(reply("stop"), "told", EMPTY, "it was empty: answer, or call a tool"),
    "calls without any": row(reply("tool_calls", " \n"), "told", EMPTY, "it was empty"),
    "all in thoughts": row(reply("stop", reasoning="42"), "told", EMPTY, "it was empty"),
    "empty again": row(
        reply("stop"), "fails", EMPTY, "the model gave an empty answer (twice", after=told(EMPTY)
    ),
    "empty, after a summary": row(
        reply("stop"), "fails", EMPTY, "twice", after=told(EMPTY, SummaryMessage(end=1))
    ),
    "empty, told of something else": row(reply("stop"), "told", EMPTY, "it was empty", after=told(CUT)),
    "empty, told long ago": row(
        reply("stop"), "told", EMPTY, "it was empty", after=(*told(EMPTY), *WROTE[1:2])
    ),
    "empty, accepted": row(reply("stop"), "stands", EMPTY, "gave an empty answer", on_empty="accept"),
    "empty, fails": row(reply("stop"), "fails", EMPTY, "gave an empty answer", after=WROTE, on_empty="fail"),
    "empty, with an artifact": row(reply("stop"), "stands", EMPTY, "gave an empty answer", after=WROTE),
    "empty, with an old artifact": row(reply("stop"), "told", EMPTY, "it was empty", after=(*WROTE, *ASKED)),
    "malformed": row(reply("malformed", "", HALF), "told", CUT, "call that could not be read"),
    "malformed again": row(reply("malformed"), "fails", CUT, "could not be read (twice", after=told(CUT)),
    "a plugin's no": row(reply("length", "Hi", refused="no"), "told", "", "no"),
    "a plugin's end": row(reply("stop", closing="enough"), "stands", "", "enough"),
    "cut, and a plugin's word": row(reply("length", "Hi", closing="x"), "stands", CUT, "x; the answer was"),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_how_a_reply_ended_decides_what_becomes_of_it(row: Row) -> None:
    """It is accepted, is sent back to the model once, or ends the task; with a text, and a name."""
    ended, wanted, reason, said, transcript, settings = row
    judged = judge(ended, transcript, settings)
    assert (fate(judged), judged.reason) == (wanted, reason)
    assert said in (judged.refused if wanted == "told" else judged.closing)
    assert HALF not in judged.tool_calls or ended.finish_reason == "stop"
    assert wanted == "stands" or not judged.tool_calls
    assert judged.text == ("" if wanted == "rejected" else ended.text)
    assert judged.usage == ended.usage


JSON = '{"name":"Paris"}'


@pytest.mark.parametrize(
    ("ended", "settings", "wanted", "reason", "said"),
    [
        (reply("length", '{"name'), {}, "told", "", "it was cut off, because replies may only be so long"),
        (reply("length", JSON), {}, "stands", "", ""),
        (reply("length"), {}, "fails", CUT, "for thinking"),
        (reply("length", "", HALF), {}, "told", CUT, "within the call of write"),
        (reply("content_filter", JSON), {}, "fails", FILTERED, "content filter"),
        (reply("refusal", "No."), {"on_refusal": "accept"}, "fails", DECLINED, "declined: No."),
        (reply("refusal", "No."), {}, "rejected", DECLINED, "declined: No."),
        (reply("stop"), {}, "told", "", "Invalid JSON"),
    ],
)
def test_an_answer_that_has_to_be_data(
    ended: AssistantMessage, settings: dict[str, Any], wanted: Fate, reason: str, said: str
) -> None:
    """An answer that does not fit gets one repair, and nothing else replaces data."""
    judged = judge(ended, ASKED, ModelSettings(**settings), City)
    assert (fate(judged), judged.reason) == (wanted, reason)
    assert said in (judged.refused or judged.closing)
    assert judged.is_invalid == (wanted == "told" and not reason)


@pytest.mark.parametrize(
    ("ended", "output", "wanted", "said"),
    [
        (reply("stop", "So far.", WHOLE), None, "stands", "at 3; the answer is what there was by then"),
        (reply("length", "So"), None, "stands", "; at 3; the answer is what there was by then"),
        (reply("tool_calls", "", WHOLE), None, "told", "empty"),
        (reply("stop"), None, "told", "empty"),
        (reply("content_filter", "So"), None, "told", "content filter"),
        (reply("refusal", "No."), None, "told", "declined: No."),
        (reply("stop", "Paris"), City, "told", "Invalid JSON"),
        (reply("stop", JSON), City, "stands", "at 3; the answer is"),
    ],
)
def test_at_a_limit_only_an_answer_stands(
    ended: AssistantMessage, output: type[BaseModel] | None, wanted: Fate, said: str
) -> None:
    """No call is run any more; the task ends at its limit, for no other reason."""
    judged = judge(ended, ASKED, ModelSettings(on_length="tell"), output, last="at 3")
    assert (fate(judged), judged.tool_calls) == (wanted, ())
    assert said in (judged.refused or judged.closing)


REQUEST = ModelRequest("m", ({"role": "user", "content": "Hi"},))
AS_DATA = ModelRequest("m", (), output=OutputSchema("City", {}))


@pytest.mark.parametrize(
    ("request_", "so_far", "goes_on"),
    [
        (REQUEST, reply("length", "Once upon"), True),
        (REQUEST, reply("stop", "Once upon"), False),
        (REQUEST, reply("length", " "), False),
        (REQUEST, reply("length", "Once", HALF), False),
        (AS_DATA, reply("length", '{"name'), False),
        (ModelRequest("m", (), settings=ModelSettings(on_length="tell")), reply("length", "Once"), False),
        (ModelRequest("m", (), settings=ModelSettings(on_length="continue")), reply("length", "Once"), True),
    ],
    ids=["cut", "whole", "no text", "half a call", "data", "set otherwise", "set so"],
)
def test_a_text_that_was_cut_off_is_continued(
    request_: ModelRequest, so_far: AssistantMessage, *, goes_on: bool
) -> None:
    """After the existing text."""
    more = continuation(request_, so_far)
    added = [
        {"role": "assistant", "content": so_far.text},
        {"role": "user", "content": "[Go on exactly where your reply stopped.]"},
    ]
    assert (more and list(more.messages)) == ([*request_.messages, *added] if goes_on else None)


def test_both_halves_are_one_reply() -> None:
    """With the thoughts and the cost of both, the end of the second, and no opaque fields."""
    first = reply("length", "Once ", reasoning="A tale.", opaque='{"a":1}', model="m", source="p/m")
    call = WHOLE.model_copy(update={"opaque": '{"b":2}'})
    rest = reply("tool_calls", "upon", call, reasoning="On.", opaque='{"c":3}', model="m", source="p/m")
    assert joined(first, rest.model_copy(update={"reasoning_field": "reasoning"})) == AssistantMessage(
        text="Once upon",
        reasoning="A tale.\n\nOn.",
        tool_calls=(WHOLE,),
        finish_reason="tool_calls",
        model="m",
        source="p/m",
        usage=Usage(output_tokens=18),
    )
