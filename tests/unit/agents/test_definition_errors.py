"""Complete errors of wrong settings for authors: owner, given value, and remedy."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest
from pydantic import SecretStr

from everloop import (
    Agent,
    Compaction,
    Limits,
    Memory,
    ModelSettings,
    NeedsApproval,
    Retries,
    Skill,
    Tool,
    mcp,
    tool,
)
from everloop.agents.errors import AgentDefinitionError

SECRET = "s3cr3t"

Settings = dict[str, object]


def agent(**settings: object) -> Agent:
    return Agent(id="one", name="Agent", description="", **settings)  # pyright: ignore[reportArgumentType] -- wrong on purpose


def act(**settings: object) -> Tool:
    def act(what: str) -> str:
        """Act."""
        return what

    return tool(**settings)(act)  # pyright: ignore[reportArgumentType] -- wrong on purpose


async def policy(arguments: object) -> bool:
    return bool(arguments)


def _refused(define: Callable[..., object], *given: object, **settings: object) -> str:
    with pytest.raises(AgentDefinitionError) as caught:
        define(*given, **settings)
    context = None if caught.value.__suppress_context__ else caught.value.__context__
    assert (caught.value.__cause__, context) == (None, None)  # a traceback does not show the given value
    return str(caught.value)


NO_LIMIT = "give a whole number from 1, or None for no limit"
REFUSAL = "give a whole number from 1, or None to wait for the provider to refuse"
POLICY = "True, False, or a plain function"
SCOPE = "give 'owner', 'tasks:approve', or another scope of your approvers"
TAGS = "give a list of names of tags, without brackets, such as ['think']"
EFFORT = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'"
CHOICE = '"auto", "none", "required", or the name of a tool'
DICTS = "give a list of dicts of JSON, such as {'type': 'web_search'}"
BYTES = "give a whole number of bytes, from 1"
YEARS = timedelta(days=3651)
TIME = "give a timedelta above 0, of at most 3650 days"


def skill(**settings: object) -> Skill:
    return Skill(**{"id": "sum", "name": "Sum", "description": "", **settings})  # pyright: ignore[reportArgumentType] -- wrong on purpose


PLACES: dict[Callable[..., object], str] = {agent: "agent 'one'", act: "tool 'act'", skill: "skill 'sum'"}
"""The beginnings of lines; those of classes are their names."""

WRONG: list[tuple[Callable[..., object], Settings, str]] = [
    (Limits, {"iterations": 0}, "iterations is 0; give a whole number from 1"),
    (Limits, {"tokens": 0}, f"tokens is 0; {NO_LIMIT}"),
    (Limits, {"cost": float("nan")}, "cost is nan; give a number above 0, or None for no limit"),
    (Limits, {"wall_clock": YEARS}, f"wall_clock is 3651 days, 0:00:00; {TIME}, or None for no limit"),
    (Limits, {"token": 5}, "it has no 'token'; did you mean 'tokens'?"),
    (Retries, {"attempts": 0}, "attempts is 0; give a whole number from 1 (no retry)"),
    (Retries, {"longest": timedelta(0)}, "delay is 0:00:01; give one from 0 to longest (0:00:00)"),
    (Memory, {"max_messages": 0}, "max_messages is 0; give a whole number from 1; no memory is memory=None"),
    (Compaction, {"strategy": "forget"}, "strategy is 'forget'; it should be 'window' or 'summary'"),
    (Compaction, {"prompt_tokens": 0}, f"prompt_tokens is 0; {REFUSAL}"),
    (ModelSettings, {"temperature": 2.1}, "temperature is 2.1; give a number from 0 to 2"),
    (ModelSettings, {"temperature": "1"}, "temperature is '1'; give a number from 0 to 2"),
    (ModelSettings, {"top_p": 0}, "top_p is 0; give a number above 0, at most 1"),
    (ModelSettings, {"max_tokens": 0}, "max_tokens is 0; give a whole number from 1"),
    (ModelSettings, {"stop": "END"}, "stop is 'END'; give a list of texts"),
    (ModelSettings, {"stop": [1]}, "stop[0] is 1; give a list of texts"),
    (ModelSettings, {"thinking_tags": ["<think>"]}, f"thinking_tags[0] is '<think>'; {TAGS}"),
    (ModelSettings, {"effort": "hard"}, f"effort is 'hard'; it should be {EFFORT}"),
    (ModelSettings, {"tool_choice": {"type": "function"}}, f"tool_choice is of type dict; give {CHOICE}"),
    (ModelSettings, {"provider_tools": ["web_search"]}, f"provider_tools[0] is 'web_search'; {DICTS}"),
    (
        ModelSettings,
        {"extra_body": {"top_k": 5, "stream": False, "model": "other"}},
        "extra_body has model, stream, which cannot be set",
    ),
    (ModelSettings, {"extra_body": []}, "extra_body is of type list; give a dict of JSON values"),
    (ModelSettings, {"extra_headers": {"X Y": "1"}}, "extra_headers: 'X Y' is no name of a header"),
    (ModelSettings, {"retries": -1}, "retries is -1; give a whole number from 0 to 100"),
    (ModelSettings, {"first_token": 5}, "first_token is 5; write first_token=timedelta(seconds=5)"),
    (ModelSettings, {"first_token": timedelta(0)}, "first_token is 0:00:00; give a timedelta above 0"),
    (
        ModelSettings,
        {"on_length": "stop"},
        "on_length is 'stop'; it should be 'continue', 'tell', 'accept' or 'fail'",
    ),
    (ModelSettings, {"temprature": 1}, "it has no 'temprature'; did you mean 'temperature'?"),
    (NeedsApproval, {"approvers": "agents:x"}, f"approvers is 'agents:x'; {SCOPE}"),
    (skill, {"tags": "x"}, "tags is 'x'; give a list of texts"),
    (Agent, {"id": 1, "name": "A", "description": ""}, "id is 1; it should be a valid string"),
    (agent, {"parallel_tools": 0}, "parallel_tools is 0; give a whole number from 1"),
    (
        agent,
        {"needs_approval": 1, "model": 2},
        f"model is 2; give the name of a model, or None; and needs_approval is 1; give {POLICY}",
    ),
    (agent, {"models": "gpt"}, "models is 'gpt'; give a list of names of models"),
    (agent, {"on_model_failure": "hope"}, "on_model_failure is 'hope'; it should be 'fail' or 'wait'"),
    (
        agent,
        {"model_takes": "image/*"},
        "model_takes is 'image/*'; give a list of media types, such as 'image/*'",
    ),
    (agent, {"output": dict}, "output is dict; give the class of a pydantic model"),
    (agent, {"limits": {"tokens": 5}}, "limits is of type dict; write limits=Limits(tokens=…)"),
    (agent, {"task_queue": "a,b"}, "task_queue is 'a,b'; give up to 200 bytes without commas"),
    (agent, {"max_result": 0}, f"max_result is 0; {BYTES}"),
    (agent, {"plugin": []}, "it has no 'plugin'; did you mean 'plugins'?"),
    (act, {"timeout": YEARS}, f"timeout is 3651 days, 0:00:00; {TIME}"),
    (act, {"unknown_outcome": "guess"}, "unknown_outcome is 'guess'; it should be 'tell' or 'ask'"),
    (act, {"needs_approval": policy}, f"needs_approval is an async function; give {POLICY}"),
    (act, {"max_result": 1.5}, f"max_result is 1.5; {BYTES}"),
    (act, {"retries": 3}, "retries is 3; write retries=Retries(attempts=3)"),
]


@pytest.mark.parametrize(("define", "settings", "line"), WRONG, ids=count())
def test_a_wrong_setting_is_one_line(define: Callable[..., object], settings: Settings, line: str) -> None:
    """It names the agent or tool, or else the class; the setting, its value, and the remedy."""
    assert _refused(define, **settings) == f"{PLACES.get(define) or define.__name__}: {line}"


@pytest.mark.parametrize(
    ("given", "settings", "line"),
    [
        (["many"], {}, "Compaction: strategy is 'many'; it should be 'window' or 'summary'"),
        (["window"], {"strategy": "summary"}, "Compaction: strategy is given twice"),
    ],
    ids=["wrong", "twice"],
)
def test_a_value_that_is_given_by_its_place_is_named_too(
    given: list[object], settings: Settings, line: str
) -> None:
    """By the name of its field."""
    assert _refused(Compaction, *given, **settings) == line


@pytest.mark.parametrize(
    ("define", "settings", "line"),
    [
        (agent, {"token": SECRET}, "agent 'one': it has no 'token'; it has id, name, "),
        (agent, {"limits": SecretStr(SECRET)}, "agent 'one': limits is of type SecretStr; give Limits("),
        (agent, {"plugins": [{"headers": SECRET}]}, "agent 'one': plugins[0] is of type dict; give a plug"),
        (agent, {"plugins": {"headers": SECRET}}, "agent 'one': plugins is of type dict; give a list of pl"),
        (
            ModelSettings,
            {"extra_headers": {"Key": f"{SECRET}\n"}},
            "ModelSettings: extra_headers: the value of ",
        ),
        (
            ModelSettings,
            {"extra_body": {"key": {SECRET}}},
            "ModelSettings: extra_body is of type set; give a ",
        ),
        (mcp, {"url": "https://host", "headers": {"Key": f"{SECRET}\n"}}, "mcp('host'): the value of the "),
        (mcp, {"url": "https://host", "env": {"KEY": SECRET}}, "mcp('host'): env is for a server that a c"),
    ],
    ids=count(),
)
def test_a_secret_is_not_shown(define: Callable[..., object], settings: Settings, line: str) -> None:
    """For values that may contain secrets the line has the type, for unknown settings the name."""
    told = _refused(define, **settings)

    assert told.startswith(line)
    assert SECRET not in told
