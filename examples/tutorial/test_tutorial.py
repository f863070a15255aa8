"""Each chapter's librarian does what the chapter says, on real servers. A script stands in for the model."""

import json
from collections.abc import Sequence
from pathlib import Path

import step_1_tool
import step_2_approval
import step_3_memory
import step_4_artifacts
import step_5_mcp
import step_6_sub_agent
import step_7_structured_output
import step_8_deployment

from everloop import Agent
from everloop.client import Result
from everloop.testing import Call, ChatRequest, FunctionModel, Script, call, running


def results(result: Result) -> Sequence[tuple[str, str | None]]:
    """Return the results of tools."""
    return [(made.name, made.result) for made in result.tool_calls]


async def test_it_looks_a_book_up() -> None:
    """The model reads results of the tool, and its errors."""
    script = Script(call("find_book", title="Emma"), call("find_book", title="Ema"), "Two copies.")
    async with running(step_1_tool.agent, model=script) as app:
        result = await app.ask("Is Emma in?")

    found, missed = result.tool_calls
    assert json.loads(found.result or "") == {"title": "Emma", "author": "Jane Austen", "copies": 2}
    assert "no book is called 'Ema'" in (missed.result or "")
    assert result.text == "Two copies."


async def test_it_asks_before_it_spends_much() -> None:
    """A cheap book is bought at once, an expensive one after an approval."""
    script = Script(call("buy_book", title="Ulysses", price=12.0), "Ordered.")
    async with running(step_2_approval.agent, model=script) as app:
        assert results(await app.ask("Buy Ulysses")) == [("buy_book", "ordered Ulysses for 12.00 euros")]

    script = Script(call("buy_book", title="Dune", price=45.0), "Ordered.")
    async with running(step_2_approval.agent, model=script) as app:
        asked = await app.ask("Buy Dune")
        assert (asked.state, asked.questions[0].tool) == ("input-required", "buy_book")
        assert results(await app.approve(asked)) == [("buy_book", "ordered Dune for 45.00 euros")]


async def test_it_remembers_what_a_reader_said() -> None:
    """The next task of the same conversation begins with the messages of the one before."""

    def model(request: ChatRequest) -> str:
        said = [str(message.content) for message in request.messages if message.role == "user"]
        return " / ".join(said)

    async with running(step_3_memory.agent, model=FunctionModel(model)) as app:
        first = await app.ask("I like sea stories.")
        second = await app.ask("What shall I read?", context_id=first.context_id)
        other = await app.ask("What shall I read?")

    assert second.text == "I like sea stories. / What shall I read?"
    assert other.text == "What shall I read?"


async def test_it_reads_a_file_and_leaves_a_table(tmp_path: Path) -> None:
    """A file of the client is an artifact that tools read; what a tool writes, clients download."""
    file = tmp_path / "list.txt"
    file.write_text("Emma\nKim\nDune\n", encoding="utf-8")

    async def model(request: ChatRequest) -> str | Call:
        if request.results:
            return "Checked."
        stored = await app.client.stored_artifacts(context)
        return call("check_list", artifact_id=stored[0].artifact_id)

    async with running(step_4_artifacts.agent, model=FunctionModel(model)) as app:
        context = "reading"
        result = await app.ask("Check my list", files=[file], context_id=context)
        *_, table = await app.client.stored_artifacts(context)
        lines = (await app.client.read(table.parts[0].part)).decode().splitlines()

    assert results(result) == [("check_list", "3 titles are in the artifact reading-list")]
    assert [json.loads(line)["copies"] for line in lines] == [2, 0, 0]


async def test_it_asks_other_libraries() -> None:
    """Tools of an MCP server are tools like all others."""
    script = Script(call("branches_with", title="Kim"), "The harbour branch has it.")
    async with running(step_5_mcp.agent, model=script) as app:
        result = await app.ask("Where is Kim?")

    assert "Harbour" in (result.tool_calls[0].result or "")
    assert not result.tool_calls[0].is_error


async def test_it_asks_the_critic() -> None:
    """A sub-agent's answer is the result of the call."""
    script = Script(call("critic", request="Emma by Jane Austen"), "Witty and warm.", "Read Emma!")
    async with running(*step_6_sub_agent.agents, model=script) as app:
        result = await app.ask("What shall I read?")

    assert results(result) == [("critic", "Witty and warm.")]
    assert result.text == "Read Emma!"


async def test_its_answer_is_data() -> None:
    """An answer that does not fit goes back to the model, which has one more try."""
    wrong = {"title": "Emma", "reason": "It is witty.", "copies": "two"}
    right = step_7_structured_output.Recommendation(title="Emma", reason="It is witty.", copies=2)
    async with running(
        step_7_structured_output.recommender, step_7_structured_output.critic, model=Script(wrong, right)
    ) as app:
        result = await app.ask("Recommend a book")

    assert result.data == right


async def test_all_of_it_is_served_together() -> None:
    """Every purchase of the deployed librarian waits for an approval."""
    agents: list[Agent] = step_8_deployment.agents
    script = Script(call("buy_book", title="Ulysses", price=12.0), "Not now.")
    async with running(*agents, model=script) as app:
        asked = await app.ask("Buy Ulysses")
        assert asked.questions[0].tool == "buy_book"
        refused = await app.approve(asked, approved=False)
        cards = {each.id for each in await app.client.agents()}

    assert refused.tool_calls[0].outcome == "rejected"
    assert cards == {"librarian", "critic", "recommender"}
