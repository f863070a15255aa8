"""Errors for beginners' mistakes in a first agent: file, line, and remedy."""

from pathlib import Path

import pytest

from everloop.agents.errors import AgentError
from everloop.agents.registry import load_agents

HEAD = """from everloop import Agent, Limits, Memory, Plugin, ToolContext
from everloop import artifacts, async_prompt, budget, guard, handoff, mcp, narrator, peer, prompt, sub_agent
from everloop import tool, tools


def plain(city: str) -> str:
    \"\"\"Tell something.\"\"\"
    return city


made = tool(plain)
writer = Agent(id="writer", name="Writer", description="Writes.")


"""
FIRST = HEAD.count("\n") + 1
"""The line where the mistake begins."""


def of(settings: str) -> str:
    return f'agent = Agent(id="a", name="A", description="d", {settings})'


def tool_with(settings: str, signature: str = "city: str") -> str:
    return f'@tool({settings})\ndef f({signature}) -> str:\n    """Do."""\n    return ""'


PLUGINS = [
    ("plain", "plugins[0] is the function plain; write tools(plain)"),
    ("made", "plugins[0] is the tool 'plain'; write tools(plain)"),
    ("'Be nice.'", "plugins[0] is 'Be nice.'; write prompt(…)"),
    ("artifacts", "plugins[0] is the function artifacts; call it: artifacts(…)"),
    ("prompt", "plugins[0] is the function prompt; call it: prompt(…)"),
    ("Plugin", "plugins[0] is the class Plugin; write Plugin()"),
    ("str", "plugins[0] is the class str; give a plugin, such as prompt('…') or tools(…)"),
    ("writer", "plugins[0] is the agent 'writer'; write sub_agent(…), or handoff(…), with it"),
    ("3", "plugins[0] is 3; give a plugin, such as prompt('…') or tools(…)"),
]

SETTINGS = [
    ("plugins=prompt('x')", "plugins is a plugin; give a list: plugins=[prompt(…)]"),
    ("plugins='Be nice.'", "plugins is 'Be nice.'; give a list of plugins, such as [prompt('…')]"),
    ("memory='summary'", "memory is 'summary'; write memory=Memory(strategy='summary')"),
    ("memory=True", "memory is True; give Memory(…)"),
    ("memory='sumary'", "memory is 'sumary'; give Memory(…)"),
    ("compaction='summary'", "compaction is 'summary'; write compaction=Compaction(strategy='summary')"),
    ("limits=5", "limits is 5; write limits=Limits(iterations=5)"),
    ("limits={'cost': 1}", "limits is of type dict; write limits=Limits(cost=…)"),
    ("tools=[plain]", "it has no 'tools'; write plugins=[tools(…)]"),
    ("instructions='x'", "it has no 'instructions'; write plugins=[prompt('…')]"),
    ("promt='x'", "it has no 'promt'; write plugins=[prompt('…')]"),
    ("modle='x'", "it has no 'modle'; did you mean 'model'?"),
    ("model=''", "model is ''; give the name of a model, or None"),
    ("respond=plain", "respond is not async; write `async def respond(turn: Turn) -> AssistantMessage`"),
    ("output={'x': int}", "output is of type dict; give the class of a pydantic model"),
]

CALLS = [
    ("sub_agent(3)", "sub_agent(3): give an agent, or the id of one: 1 to 64 letters, digits, '-' and '_'"),
    ("handoff('my writer')", "handoff('my writer'): give an agent, or the id of one: "),
    ("tools([plain])", "tools: give each tool for itself: tools(first, second), or tools(*several)"),
    ("tools(plain('x'))", "tools: it is given 'x', which is no function; give the function itself, without"),
    (
        "tools(writer)",
        "tools: 'writer' is an agent; put it beside tools(…): plugins=[tools(…), sub_agent(…)]",
    ),
    ("tools(prompt('x'))", "tools: 'prompt' is a plugin; put it beside tools(…): "),
    ("prompt(plain)", "prompt: text is of type function; give a text; async_prompt(…) takes a function"),
    ("prompt('x', plac='after')", "prompt: it has no 'plac'; did you mean 'place'?"),
    ("prompt('x', place='behind')", "prompt: place is 'behind'; it should be 'before' or 'after'"),
    ("prompt()", "prompt: text is missing"),
    (
        "async_prompt('x')",
        "async_prompt: writer is 'x'; give an async function that returns a text; prompt(…)",
    ),
    ("async_prompt(plain)", "its function is not async; write `async def`"),
    ("narrator(interval='5')", "narrator: interval is '5'; give a number of seconds, from 1"),
    ("budget(cost='1')", "budget: cost is '1'; it should be a valid number"),
    ("mcp('https://a.example/', timeout=60)", "timeout is 60; write timeout=timedelta(seconds=60)"),
    ("mcp('https://a.example/', header={})", "'headers'?"),  # the words are Python's, from 3.14 on
    ("mcp(command=['x'], env={'A': 1})", "mcp('x'): env has a value that is no text; put each in quotes"),
    ("peer('https://a.example/', timeout=60)", "timeout is 60; write timeout=timedelta(seconds=60)"),
    ("peer('https://a.example/', hosts='b')", "hosts is a list, such as ['b']"),
    (
        "peer('a.example')",
        "peer('a.example'): the address is no web address; give one with http:// or https://",
    ),
    ("guard(denied=['x'])", "'denied'; did you mean 'deny'?"),
    ("promt('x')", "NameError: name 'promt' is not defined; did you mean 'prompt'?"),
    (
        "Limits(wall_clock=timedelta(1))",
        "'timedelta' is not defined; import it: from datetime import timedelta",
    ),
    ("Limits(wall_clock=3600)", "Limits: wall_clock is 3600; write wall_clock=timedelta(seconds=3600)"),
]

STATEMENTS = [
    (tool_with("timeout=60"), "tool 'f': timeout is 60; write timeout=timedelta(seconds=60)"),
    (tool_with("timeout=1.5"), "tool 'f': timeout is 1.5; write timeout=timedelta(seconds=1.5)"),
    (tool_with("retries=3"), "tool 'f': retries is 3; write retries=Retries(attempts=3)"),
    (tool_with("time_out=60"), "tool 'f': it has no 'time_out'; did you mean 'timeout'?"),
    (tool_with("'name'"), "tool('name'): a name is given by name; write @tool(name='name')"),
    (
        tool_with("", "one: ToolContext, two: ToolContext"),
        "tool 'f': one and two all take the ToolContext; one is enough",
    ),
    (tool_with("", "city"), "tool 'f': parameter 'city' has no type annotation; add one, "),
    ("import numpyy", "ModuleNotFoundError: No module named 'numpyy'; correct the name, or install"),
    ("from everloop import Agnet", "did you mean 'Agent'?"),
    ('agent = Agent(id="a" name="A")', "SyntaxError: invalid syntax. Perhaps you forgot a comma?"),
    (f"{of('')}\nother_{of('')}", "has one of the same id and version"),
    (
        "class Own(Plugin):\n    async def before_tol(self, context, call): ...\n\n\nOwn()",
        "plugin 'own': no hook is called 'before_tol'; did you mean 'before_tool'?",
    ),
    (
        "class Own(Plugin):\n    def before_tool(self, context, call): ...\n\n\nOwn()",
        "plugin 'own': before_tool is no async method; write `async def before_tool`",
    ),
    (
        'class Own:\n    @tool\n    def f(self, city: str) -> str:\n        """Do."""\n\n\ntools(Own.f)',
        "tool 'f': it is a method of a class; give that of an object: tools(some_object.f)",
    ),
]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        *((of(f"plugins=[{plugin}]"), f"agent 'a': {line}") for plugin, line in PLUGINS),
        *((of(settings), f"agent 'a': {line}" if ": " not in line else line) for settings, line in SETTINGS),
        *((of(f"plugins=[{call}]"), line) for call, line in CALLS),
        *STATEMENTS,
    ],
)
def test_a_mistake_is_one_line_that_says_where_it_is_and_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, line: str
) -> None:
    """The line is that of the wrong file, and no traceback follows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # which is restored, with all that load_agents adds
    file = tmp_path / "first_agent.py"
    file.write_text(f"{HEAD}{code}\n")

    with pytest.raises(AgentError) as refused:
        load_agents("first_agent.py")

    told = str(refused.value)
    place, _, _ = told.partition(": ")
    name, number = place.split(":")
    assert name == "first_agent.py"
    assert FIRST <= int(number) <= FIRST + code.count("\n")
    assert line in told
    assert "\n" not in told
