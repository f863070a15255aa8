"""What becomes of a reply by the way in which it ended, and what the settings of an agent make of that."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel

from everloop.activities.model.outcome import continuation, joined, judge
from everloop.models.interface import ModelRequest, OutputSchema
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    ToolCall,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.settings import ModelSettings

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
    """Return what becomes of a reply; it is one thing only."""
    assert [bool(judged.refused), judged.fails, judged.rejects].count(True) <= 1
    if judged.refused:
        return "told"
    if judged.fails:
        return "fails"
    return "rejected" if judged.rejects else "stands"


Row = tuple[AssistantMessage, dict[str, Any], tuple[TranscriptMessage, ...], Fate, str, str]
LIMIT = "at the model's limit, after 9 tokens"
ROWS: dict[str, Row] = {
    "well": (reply("stop", "Hi."), {}, ASKED, "stands", "", ""),
    "calls, and stop": (reply("stop", "", HALF), {}, ASKED, "stands", "", ""),
    "cut": (reply("length", "Hi"), {}, ASKED, "stands", CUT, f"the answer was cut off {LIMIT}"),
    "cut, accepted": (
        reply("length", "Hi"),
        {"on_length": "accept"},
        ASKED,
        "stands",
        CUT,
        f"cut off {LIMIT}",
    ),
    "cut, told": (reply("length", "Hi"), {"on_length": "tell"}, ASKED, "told", CUT, "; write less"),
    "cut, told before": (
        reply("length", "Hi"),
        {"on_length": "tell"},
        told(CUT),
        "stands",
        CUT,
        "was cut off",
    ),
    "cut, fails": (reply("length", "Hi"), {"on_length": "fail"}, ASKED, "fails", CUT, "raise max_tokens"),
    "half a call": (
        reply("length", "So", HALF),
        {"on_length": "accept"},
        ASKED,
        "told",
        CUT,
        "within the call of write; nothing of it was run; write less",
    ),
    "half a call again": (
        reply("length", "", HALF),
        {},
        told(CUT),
        "fails",
        CUT,
        f"the call of write {LIMIT}",
    ),
    "half a call behind a whole one": (reply("length", "So", WHOLE, HALF), {}, ASKED, "stands", "", ""),
    "a call without arguments yet": (
        reply("length", "", called("f", "")),
        {},
        ASKED,
        "told",
        CUT,
        "call of f",
    ),
    "thoughts": (
        reply("length", reasoning="Hm"),
        {},
        ASKED,
        "fails",
        CUT,
        "the model used all 9 tokens for thinking; raise max_tokens",
    ),
    "thoughts, accepted": (reply("length"), {"on_length": "accept"}, ASKED, "stands", CUT, "for thinking"),
    "filtered": (
        reply("content_filter", "So", WHOLE),
        {},
        ASKED,
        "fails",
        FILTERED,
        "the provider's content filter stopped the reply",
    ),
    "filtered, told": (
        reply("content_filter"),
        {"on_content_filter": "tell"},
        ASKED,
        "told",
        FILTERED,
        "content filter stopped it",
    ),
    "filtered, told before": (
        reply("content_filter"),
        {"on_content_filter": "tell"},
        told(FILTERED),
        "fails",
        FILTERED,
        "content filter",
    ),
    "filtered, accepted": (
        reply("content_filter", "So"),
        {"on_content_filter": "accept"},
        ASKED,
        "stands",
        FILTERED,
        "content filter",
    ),
    "declined": (
        reply("refusal", "I won't."),
        {},
        ASKED,
        "rejected",
        DECLINED,
        "the model declined: I won't.",
    ),
    "declined without a word": (reply("refusal"), {}, ASKED, "rejected", DECLINED, "gave no reason"),
    "declined, accepted": (
        reply("refusal", "I won't."),
        {"on_refusal": "accept"},
        ASKED,
        "stands",
        DECLINED,
        "the model declined to answer",
    ),
    "declined, fails": (
        reply("refusal", "No."),
        {"on_refusal": "fail"},
        ASKED,
        "fails",
        DECLINED,
        "declined: No.",
    ),
    "empty": (reply("stop"), {}, ASKED, "told", EMPTY, "it was empty: answer, or call a tool"),
    "calls without any": (reply("tool_calls", " \n"), {}, ASKED, "told", EMPTY, "it was empty"),
    "all in thoughts": (reply("stop", reasoning="42"), {}, ASKED, "told", EMPTY, "it was empty"),
    "empty again": (reply("stop"), {}, told(EMPTY), "fails", EMPTY, "the model gave an empty answer (twice"),
    "empty, after a summary": (
        reply("stop"),
        {},
        told(EMPTY, SummaryMessage(end=1)),
        "fails",
        EMPTY,
        "twice",
    ),
    "empty, told of something else": (reply("stop"), {}, told(CUT), "told", EMPTY, "it was empty"),
    "empty, told long ago": (reply("stop"), {}, (*told(EMPTY), *WROTE[1:2]), "told", EMPTY, "it was empty"),
    "empty, accepted": (
        reply("stop"),
        {"on_empty": "accept"},
        ASKED,
        "stands",
        EMPTY,
        "gave an empty answer",
    ),
    "empty, fails": (reply("stop"), {"on_empty": "fail"}, WROTE, "fails", EMPTY, "gave an empty answer"),
    "empty, with an artifact": (reply("stop"), {}, WROTE, "stands", EMPTY, "gave an empty answer"),
    "empty, with an old artifact": (reply("stop"), {}, (*WROTE, *ASKED), "told", EMPTY, "it was empty"),
    "malformed": (reply("malformed", "", HALF), {}, ASKED, "told", CUT, "call that could not be read"),
    "malformed again": (reply("malformed"), {}, told(CUT), "fails", CUT, "could not be read (twice"),
    "a plugin's no": (reply("length", "Hi", refused="no"), {}, ASKED, "told", "", "no"),
    "a plugin's end": (reply("stop", closing="enough"), {}, ASKED, "stands", "", "enough"),
    "cut, and a plugin's word": (
        reply("length", "Hi", closing="x"),
        {},
        ASKED,
        "stands",
        CUT,
        "x; the answer was",
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_how_a_reply_ended_decides_what_becomes_of_it(row: Row) -> None:
    """It stands, goes back to the model once, or ends the task; in words, and by a name."""
    ended, settings, transcript, wanted, reason, said = row
    judged = judge(ended, transcript, ModelSettings(**settings))
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
    """What does not fit has its one repair, and nothing else stands for data."""
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
    """Behind what there is of it."""
    more = continuation(request_, so_far)
    added = [
        {"role": "assistant", "content": so_far.text},
        {"role": "user", "content": "[Go on exactly where your reply stopped.]"},
    ]
    assert (more and list(more.messages)) == ([*request_.messages, *added] if goes_on else None)


def test_both_halves_are_one_reply() -> None:
    """With the thoughts of both, what both cost, the end of the second, and nothing opaque."""
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
