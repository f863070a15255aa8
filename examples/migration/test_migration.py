"""The agents of the three pages behave as their originals; a script takes the place of their models."""

import from_langgraph
import from_openai_agents
import from_pydantic_ai
import pytest

from everloop.testing import Script, StartApp, call

CANCELS = call("cancel_order", order="A-1")


async def test_openai_agents(everloop_app: StartApp) -> None:
    """An approval, a handoff, and a second message that depends on the first."""
    script = Script(CANCELS, "It is cancelled.", call("hand_over_to_billing"), "The invoice comes by mail.")
    app = await everloop_app(*from_openai_agents.agents, model=script)

    asked = await app.ask("Cancel A-1.")
    assert (asked.questions[0].tool, asked.questions[0].arguments) == ("cancel_order", {"order": "A-1"})
    result = await app.approve(asked)
    assert (result.text, from_openai_agents.ORDERS["A-1"]) == ("It is cancelled.", "cancelled")

    second = await app.ask("And my invoice?", context_id=result.context_id)
    assert second.text == "The invoice comes by mail."
    assert "Cancel A-1." in [message.text for message in script.requests[-1].messages]
    assert "You answer questions about invoices." in script.requests[-1].messages[0].text


async def test_pydantic_ai(everloop_app: StartApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """The customer is in the prompt, an error goes to the model, and the answer is data."""
    monkeypatch.setattr(from_pydantic_ai, "shop", from_pydantic_ai.Shop({("anonymous", "A-1"): "on its way"}))
    reply = from_pydantic_ai.Reply(text="It is cancelled.", order="A-1")
    script = Script(call("order_status", order="B-1"), CANCELS, reply)
    app = await everloop_app(from_pydantic_ai.agent, model=script)

    asked = await app.ask("Cancel my order.")
    result = await app.approve(asked)

    assert "The customer is anonymous." in "".join(each.text for each in script.requests[0].messages)
    assert "there is no order B-1" in str(result.tool_calls[0].result)
    assert from_pydantic_ai.Reply.model_validate(result.data) == reply
    assert from_pydantic_ai.shop.orders["anonymous", "A-1"] == "cancelled"


@pytest.mark.parametrize(("answer", "state"), [(True, "cancelled"), (False, "on its way")])
async def test_langgraph(
    everloop_app: StartApp, monkeypatch: pytest.MonkeyPatch, *, answer: bool, state: str
) -> None:
    """The tool asks in its middle, and the answer decides."""
    monkeypatch.setattr(from_langgraph, "ORDERS", {"A-1": "on its way"})
    app = await everloop_app(from_langgraph.agent, model=Script(CANCELS, "As you wish."))

    asked = await app.ask("Cancel A-1.")
    assert (asked.questions[0].kind, asked.questions[0].text) == ("confirmation", "Cancel A-1?")
    await app.answer(asked, answer)

    assert {"A-1": state} == from_langgraph.ORDERS
