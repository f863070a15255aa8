"""A budget: the note to the model, and the removal of its tools."""

import pytest

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.guard import budget
from everloop.agents.hooks import HookContext
from everloop.agents.limits import ModelSettings
from everloop.models.interface import ModelRequest
from everloop.workflows.contract.messages import ListedTool, Usage

TOOLS = tuple(ListedTool(name=name, description="", parameters={}) for name in ("f", "g"))
REQUEST = ModelRequest(
    "m", ({"role": "user", "content": "Hi"},), TOOLS, ModelSettings(temperature=0, tool_choice="required")
)


async def asked(
    usage: Usage, limits: dict[str, float], request: ModelRequest = REQUEST
) -> ModelRequest | None:
    """Return the changes of a budget to a model call of a task with this usage."""
    plugin = budget(**limits)  # pyright: ignore[reportArgumentType] -- a table of limits
    context = HookContext(task_id="t", context_id="c", owner="o", agent_id="a", iteration=3, usage=usage)
    made = await plugin.before_model_call(context, request)
    assert made is None or isinstance(made, ModelRequest)
    return made


def note(request: ModelRequest | None) -> str:
    """Return the note at the end, after all other messages."""
    assert request
    *history, last = request.messages
    assert tuple(history) == REQUEST.messages
    assert last["role"] == "system"
    return str(last["content"])


ANSWER_NOW = "answer now with what you have"


@pytest.mark.parametrize(
    ("usage", "limits", "told"),
    [
        (Usage(input_tokens=700, output_tokens=99), {"tokens": 1000}, ""),
        (Usage(cost=0.79), {"cost": 1.0}, ""),
        (Usage(cost=None), {"cost": 1.0}, ""),
        (Usage(input_tokens=10**9), {"cost": 1.0}, ""),
        (
            Usage(input_tokens=700, output_tokens=100),
            {"tokens": 1000},
            "80% of its budget; 200 of 1000 tokens",
        ),
        (
            Usage(input_tokens=100, cost=0.45),
            {"tokens": 1000, "cost": 0.5},
            "90% of its budget; 900 of 1000 tokens and $0.0500 of $0.5000 are",
        ),
        (Usage(input_tokens=600, output_tokens=400), {"tokens": 1000}, ANSWER_NOW),
        (Usage(cost=1.5), {"cost": 1.0}, ANSWER_NOW),
    ],
)
async def test_the_model_is_told_what_is_left(usage: Usage, limits: dict[str, float], told: str) -> None:
    """From the agent's share on; in the end it has no tools any more, and has to answer."""
    made = await asked(usage, limits)

    if told:
        assert told in note(made)
        assert made
        assert (made.settings, made.model) == (REQUEST.settings, "m")
        assert made.tools == (() if told == ANSWER_NOW else REQUEST.tools)
    else:
        assert made is None


async def test_a_tool_that_has_to_be_called_stays() -> None:
    """The answer exists already; without its artifact the task would have failed."""
    forced = ModelRequest("m", REQUEST.messages, TOOLS[:1], ModelSettings(tool_choice="f"))

    assert await asked(Usage(input_tokens=2), {"tokens": 1}, forced) is None


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({}, "neither tokens nor cost"),
        ({"tokens": 0}, "tokens start at 1, not at 0"),
        ({"cost": float("nan")}, "give more than 0"),
        ({"tokens": 1, "warn_at": 1.1}, "a share above 0, at most 1"),
    ],
)
def test_a_budget_that_nobody_could_keep_is_refused(limits: dict[str, float], problem: str) -> None:
    """In the line of its definition, with the remedy."""
    with pytest.raises(AgentDefinitionError, match=f"^budget: .*{problem}"):
        budget(**limits)  # pyright: ignore[reportArgumentType] -- a table of limits
