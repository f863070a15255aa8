"""A model call as plugins see it, and what they may make of it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import JsonValue

from everloop.activities.model.plugins import FIXED_SETTINGS, as_chat_request, as_model_request
from everloop.activities.model.request import ChatRequest, build_request, made_to_call
from everloop.agents.agent import Agent
from everloop.agents.hooks import ModelRequest
from everloop.agents.plugins import tools
from everloop.agents.tool import tool
from everloop.workflows.contract.messages import AssistantMessage


@tool
def find(query: str) -> str:
    """Find."""
    return query


@tool
def write(text: str) -> str:
    """Write."""
    return text


AGENT = Agent(id="a", name="", description="", plugins=[tools(find, write)])
REQUEST = build_request("m", AGENT, [AssistantMessage(text="Hi")])
FORCED = made_to_call(REQUEST, "write")


def changed(request: ChatRequest, change: Callable[[ModelRequest], ModelRequest]) -> Mapping[str, object]:
    """Return the request that a plugin makes of one."""
    return {**as_chat_request(change(as_model_request(request)), request)}


def test_a_plugin_sees_the_whole_call() -> None:
    """Model, messages, names of tools, and everything else as settings."""
    seen = as_model_request(FORCED)

    assert (seen.model, seen.tools) == ("m", ("find", "write"))
    assert [message["role"] for message in seen.messages] == ["assistant", "user"]
    assert sorted(seen.settings) == ["parallel_tool_calls", "tool_choice"]


def test_tools_may_be_taken_away() -> None:
    """In their order; without any the request has no list, which could not be empty."""
    assert (
        changed(REQUEST, lambda seen: replace(seen, tools=("write",)))["tools"]
        == REQUEST.get("tools", [])[1:]
    )
    assert "tools" not in changed(REQUEST, lambda seen: replace(seen, tools=()))


def test_without_tools_there_is_nothing_to_choose() -> None:
    """Providers refuse settings of tools where there are none."""
    settings: Mapping[str, JsonValue] = {"tool_choice": "auto", "parallel_tool_calls": True, "top_p": 1}

    made = changed(REQUEST, lambda seen: replace(seen, tools=(), settings=settings))

    assert made.keys() == {"model", "messages", "top_p"}


@pytest.mark.parametrize("left", [("find",), ()])
def test_a_tool_that_is_gone_need_not_be_called(left: tuple[str, ...]) -> None:
    """Providers refuse a request that asks for one they were not told of."""
    made = changed(FORCED, lambda seen: replace(seen, tools=left))

    assert not {"tool_choice", "parallel_tool_calls"} & made.keys()


@pytest.mark.parametrize("setting", sorted(FIXED_SETTINGS))
def test_what_is_no_setting_is_refused(setting: str) -> None:
    """A stream of another kind could not be read."""
    with pytest.raises(ValueError, match=f"^{setting} cannot be set by `settings`"):
        changed(REQUEST, lambda seen: replace(seen, settings={setting: False}))


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1, tzinfo=UTC), {1}, float("nan"), "\ud800"],
    ids=["time", "set", "nan", "surrogate"],
)
def test_what_is_not_json_is_refused(value: object) -> None:
    """Here, and not by the client of the provider, where the call would be tried again for ever."""
    wrong: Mapping[str, JsonValue] = {"role": "user", "content": value}  # pyright: ignore[reportAssignmentType] -- what a plugin may do

    def set_it(seen: ModelRequest) -> ModelRequest:
        return replace(seen, settings=wrong)

    def say_it(seen: ModelRequest) -> ModelRequest:
        return replace(seen, messages=(*seen.messages, wrong))

    for change in (set_it, say_it):
        with pytest.raises(ValueError, match="are no JSON"):
            changed(REQUEST, change)
