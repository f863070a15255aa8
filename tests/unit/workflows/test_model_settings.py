"""Settings of model calls: layers, and their text for operators."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everloop.agents import limits
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import (
    AssistantMessage,
    FilePart,
    StoredPartRef,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    measure,
)
from everloop.workflows.reporting import model_summary
from everloop.workflows.state import TaskRunState


@pytest.mark.parametrize(
    ("upper", "lower", "both"),
    [
        ({}, {}, {}),
        ({"seed": 1}, {"top_p": 0.5}, {"seed": 1, "top_p": 0.5}),
        ({"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.0}),
        ({"cache": False, "stop": ()}, {"cache": True, "stop": ["#"]}, {"cache": False, "stop": ()}),
        ({"extra_body": {"a": 1}}, {}, {"extra_body": {"a": 1}}),
        (
            {"extra_body": {"a": 1, "b": {"c": 1}}, "extra_headers": {}},
            {"extra_body": {"b": {"d": 1}, "e": None}, "extra_headers": {"X": "1"}},
            {"extra_body": {"a": 1, "b": {"c": 1}, "e": None}, "extra_headers": {"X": "1"}},
        ),
    ],
)
def test_what_is_not_set_is_as_the_layer_below_has_it(
    upper: dict[str, Any], lower: dict[str, Any], both: dict[str, Any]
) -> None:
    """Also if the upper one is an author's; values that count as false are set."""
    under = ModelSettings(**lower)
    assert ModelSettings(**upper).over(under) == ModelSettings(**both)
    assert limits.ModelSettings(**upper).over(under) == limits.ModelSettings(**both)


def test_operators_read_what_is_set() -> None:
    """In a few words, without the content of a dict: it may be long, or private."""
    settings = ModelSettings(
        temperature=0.2,
        effort="high",
        cache=False,
        stop=["a", "b"],
        first_token=timedelta(seconds=90),
        extra_body={"top_k": 40, "user": "Ann"},
    )
    assert settings.summary() == (
        "temperature 0.2, stop (2), effort high, cache off, extra_body top_k user, first_token 90 s"
    )
    assert ModelSettings().summary() == ""


@pytest.mark.parametrize(
    ("model", "settings", "last", "line"),
    [
        (None, ModelSettings(), "", "default model · 2 messages"),
        ("deepseek/v4", ModelSettings(effort="high"), "", "deepseek/v4 · effort high · 2 messages"),
        ("m", ModelSettings(), "the limit is reached", "last call · m · 2 messages"),
        (
            "m" * 99,
            ModelSettings(service_tier="x" * 99),
            "",
            f"{'m' * 63}… · service_tier {'x' * 66}… · 2 messages",
        ),
    ],
)
def test_the_line_of_a_model_call_says_which_model_is_asked_and_how(
    model: str | None, settings: ModelSettings, last: str, line: str
) -> None:
    """In Temporal's UI; a long one leaves room for the rest."""
    hello = UserMessage(message_id="m", parts=())
    state = TaskRunState.begin(hello, datetime(2026, 11, 1, tzinfo=UTC))
    state.iteration, state.transcript, state.last_call = 3, [hello, hello], last
    assert model_summary(state, model, settings) == f"iteration 3 · {line}"


def test_a_cost_of_which_a_part_is_unknown_is_unknown() -> None:
    """Limits count the known part; clients read null, and not that it was free."""
    known, unknown = Usage(input_tokens=1, cost=0.5, cached_tokens=1), Usage(output_tokens=2, cost=None)
    assert known + known == Usage(input_tokens=2, cost=1.0, cached_tokens=2)
    for usage in (known + unknown, unknown + known):
        assert usage == Usage(input_tokens=1, output_tokens=2, cost=None, cached_tokens=1)
        assert (usage.cost_or_zero, usage.to_metadata()["cost"]) == (0, None)


def test_what_was_added_to_messages_counts_only_where_there_is_some() -> None:
    """Otherwise running tasks would decide differently in a replay."""
    call = ToolCall(id="a", name="f", arguments="{}")
    reply = AssistantMessage(text="Hi", tool_calls=(call,))
    result = ToolMessage(call_id="a", name="f", content="1")
    assert (measure(reply), measure(result)) == (236, 217)

    sealed = reply.model_copy(update={"opaque": "x" * 1000, "source": "p/m", "reason": "ReplyCut"})
    held = reply.model_copy(update={"tool_calls": (call.model_copy(update={"opaque": "x" * 1000}),)})
    file = FilePart(media_type="image/png", stored=StoredPartRef(artifact_id="a"))
    assert measure(sealed) == measure(held) == measure(reply) + 1002
    assert measure(result.model_copy(update={"files": (file,), "whole": 9})) > measure(result)
