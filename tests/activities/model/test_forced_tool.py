"""A model call whose reply has to be a call of one tool: the client has its answer already."""

import pytest

from tests.support.rigs.artifact_writer_rig import WRITER, arguments, fail, text
from tests.support.rigs.model_rig import follow_up, model_bench
from tests.support.servers.scripted_openai import Answer, Refusal, Reply, ScriptedOpenAI, Step, tool_call


@pytest.mark.parametrize("steps", [["Well. ", tool_call("artifact_update", arguments("Doc."))], ["Well."]])
async def test_a_tool_that_has_to_be_called(steps: list[Step]) -> None:
    """The client has its answer, which stands; what the model says besides is not shown."""
    async with (
        ScriptedOpenAI([Reply(["The answer."]), Reply(steps)]) as provider,
        model_bench(provider, agent=WRITER) as bench,
    ):
        answer = await bench.run()
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, answer)
        call = follow_up(bench.call, answer).model_copy(
            update={"length": 2, "new": (), "tool": "artifact_update"}
        )
        reply = await bench.run(call)

        body, response = provider.requests[1].body, await bench.response()
        assert body["tool_choice"] == {"type": "function", "function": {"name": "artifact_update"}}
        assert body["parallel_tool_calls"] is False
        assert provider.requests[1].conversation[-1]["role"] == "user"
        assert reply.text in {"Well. ", "Well."}
        assert len(reply.tool_calls) == len(steps) - 1
        assert response
        assert (await bench.response_text(), response.complete) == ("The answer.", True)
        assert await text(bench) == ("Doc." if reply.tool_calls else None)


async def test_a_forced_call_that_fails_leaves_the_answer() -> None:
    """Neither a cut reply nor a refusal touches what the client has."""
    script: list[Answer] = [Reply(["The answer."]), Reply(["Well. "], ending="cut"), Refusal(401)]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=WRITER) as bench:
        answer = await bench.run()
        bench.call = follow_up(bench.call, answer).model_copy(
            update={"length": 2, "new": (), "tool": "artifact_update"}
        )
        for attempt in (1, 2):
            await fail(bench, attempt=attempt)

        response = await bench.response()
        assert response
        assert (await bench.response_text(), response.complete) == ("The answer.", True)
