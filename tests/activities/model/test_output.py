"""Model calls of agents whose answer is data: asked for, checked, shown in one piece."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from pydantic import BaseModel
from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError

from everloop.agents.agent import Agent, Turn
from everloop.agents.artifact_tools import artifacts
from everloop.agents.hooks import HookContext
from everloop.agents.plugins import Plugin, tools
from everloop.stores.transcripts import RedisTranscripts
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.events import ArtifactChunk, Thought
from everloop.workflows.contract.messages import AssistantMessage, DataPart, Part, TextPart, ToolCall
from tests.support.rigs.artifact_writer_rig import arguments as artifact_arguments
from tests.support.rigs.model_rig import ModelBench, follow_up, model_bench, search
from tests.support.servers.scripted_openai import Answer, Reasoning, Reply, ScriptedOpenAI, Step, tool_call


class City(BaseModel):
    """A city."""

    name: str
    people: int = 0


AGENT = Agent(id="agent", name="Agent", description="", plugins=[tools(search)], output=City)
PARIS = DataPart(data={"name": "Paris", "people": 2})


async def shown(bench: ModelBench) -> tuple[tuple[Part, ...], bool] | None:
    """Return what clients see of the answer, and whether it is complete."""
    response = await bench.response()
    return response and (response.parts, response.complete)


async def test_an_answer_is_data(redis_url: str) -> None:
    """The provider is told the schema; clients get one data part, and the reply is canonical."""
    gate = asyncio.Event()
    steps: list[Step] = [Reasoning("Hm."), '```json\n{"people": "2",', gate, ' "name": "Paris"}\n```']
    async with (
        Redis.from_url(redis_url, decode_responses=True) as redis,
        ScriptedOpenAI([Reply(steps)]) as provider,
        model_bench(provider, RedisTaskViews(redis), RedisTranscripts(redis), agent=AGENT) as bench,
    ):
        running = asyncio.create_task(bench.run())
        await bench.until(lambda event: isinstance(event, Thought))
        assert await bench.response() is None
        gate.set()
        reply = await running

        assert (reply.text, reply.refused) == ('{"name":"Paris","people":2}', "")
        assert await shown(bench) == ((PARIS,), True)
        assert len([event for event in await bench.events() if isinstance(event, ArtifactChunk)]) == 1
        assert provider.requests[0].body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "City", "schema": City.model_json_schema(), "strict": False},
        }


async def test_an_answer_that_does_not_fit_is_refused() -> None:
    """The reply says what the model is to be told; clients see none of it."""
    async with (
        ScriptedOpenAI([Reply(['{"name": ["Paris"]}'])]) as provider,
        model_bench(provider, agent=AGENT) as bench,
    ):
        reply = await bench.run()

        assert reply.text == '{"name": ["Paris"]}'
        assert "- name: Input should be a valid string" in reply.refused
        assert "schema 'City'" in reply.refused
        assert await bench.response() is None
        assert await bench.run(attempt=2) == reply
        assert len(provider.requests) == 1
        assert await bench.response_text() == ""


@pytest.mark.parametrize("others", [[], ["Half of it"]], ids=["dead before the end", "after another one"])
async def test_a_stored_answer_is_shown_as_data(others: Sequence[str]) -> None:
    """The attempt that stored it died before it published the end: the next one does, and asks nobody."""
    script: list[Answer] = [Reply(others, ending="cut")]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=AGENT) as bench:
        if others:
            with pytest.raises(ApplicationError):
                await bench.run(attempt=1)
        stored = AssistantMessage(text='{"name":"Paris","people":2}')
        await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 0, bench.call.new)
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, stored)

        assert await bench.run(attempt=2) == stored
        assert await shown(bench) == ((PARIS,), True)
        assert len(provider.requests) == len(others)


@pytest.mark.parametrize(
    ("winner", "expected"),
    [
        (AssistantMessage(text='{"name":"Paris","people":2}'), ((PARIS,), True)),
        (AssistantMessage(text="Rome", refused="No."), None),
        (AssistantMessage(tool_calls=(ToolCall(id="a", name="search", arguments="{}"),)), None),
    ],
    ids=["answer", "refused", "tool call"],
)
async def test_the_first_reply_stored_counts(
    winner: AssistantMessage, expected: tuple[tuple[Part, ...], bool] | None
) -> None:
    """When two attempts overlap, the later one shows the reply of the other."""
    gate = asyncio.Event()
    async with (
        ScriptedOpenAI([Reply([gate, '{"name": "Rome"}'])]) as provider,
        model_bench(provider, agent=AGENT) as bench,
    ):
        running = asyncio.create_task(bench.run())
        await provider.request(1)
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, winner)
        gate.set()

        assert await running == winner
        assert await shown(bench) == expected


async def test_words_before_tool_calls_need_not_be_data() -> None:
    """They are no answer, and are shown to nobody."""
    async with (
        ScriptedOpenAI([Reply(["Let me look.", tool_call("search")])]) as provider,
        model_bench(provider, agent=AGENT) as bench,
    ):
        reply = await bench.run()

        assert (reply.text, reply.refused, len(reply.tool_calls)) == ("Let me look.", "", 1)
        assert await bench.response() is None


async def test_an_answer_that_was_overtaken_is_taken_back() -> None:
    """The client has said more: the data of before are no result while the next answer does not fit."""
    script = [Reply(['{"name":"Paris","people":2}']), Reply(["Rome"]), Reply(['{"name": "Rome"}'])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=AGENT) as bench:
        bench.call = follow_up(bench.call, await bench.run())
        assert await shown(bench) == ((PARIS,), True)
        assert (await bench.run()).refused
        assert await shown(bench) == ((TextPart(text=""),), False)

        bench.call = follow_up(bench.call, AssistantMessage())
        await bench.run()
        assert await shown(bench) == ((DataPart(data={"name": "Rome", "people": 0}),), True)


async def test_plugins_look_before_the_answer_is_checked() -> None:
    """What they make of it has to fit."""

    class Rename(Plugin):
        """Puts another name into the answer."""

        async def after_model_call(self, context: HookContext, reply: AssistantMessage) -> AssistantMessage:
            return reply.model_copy(update={"text": reply.text.replace("Lutetia", "Paris")})

    renaming = Agent(id="agent", name="Agent", description="", plugins=[Rename()], output=City)
    script = [Reply(['{"name": "Lutetia", "people": 2}'])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=renaming) as bench:
        await bench.run()

        assert await shown(bench) == ((PARIS,), True)


async def test_a_deciding_call_may_answer_in_words() -> None:
    """An answer at once is a message, no artifact: nobody asks for data, and nobody checks."""
    async with ScriptedOpenAI([Reply(["Hello."])]) as provider, model_bench(provider, agent=AGENT) as bench:
        reply = await bench.run(bench.call.model_copy(update={"routing": True}))

        assert (reply.text, reply.refused) == ("Hello.", "")
        assert "response_format" not in provider.requests[0].body


async def test_a_tool_that_has_to_be_called_is_no_answer() -> None:
    """The client has its data; what is said besides need not be any."""
    writer = Agent(id="agent", name="Agent", description="", plugins=[artifacts()], output=City)
    script = [
        Reply(['{"name": "Paris", "people": 2}']),
        Reply(["Well.", tool_call("artifact_update", artifact_arguments("Doc."))]),
    ]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=writer) as bench:
        answer = await bench.run()
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, answer)
        call = bench.call.model_copy(update={"length": 2, "new": (), "tool": "artifact_update"})
        reply = await bench.run(call)

        assert (reply.text, reply.refused) == ("Well.", "")
        assert "response_format" not in provider.requests[1].body
        assert await shown(bench) == ((PARIS,), True)


@pytest.mark.parametrize(
    ("reply", "expected", "is_refused"),
    [
        (AssistantMessage(text='{"name": "Paris", "people": 2}'), ((PARIS,), True), False),
        (AssistantMessage(text="Paris"), None, True),
        (AssistantMessage(closing="done"), None, False),
    ],
    ids=["fits", "does not fit", "ends without an answer"],
)
async def test_a_function_answers_with_data_too(
    reply: AssistantMessage, expected: tuple[tuple[Part, ...], bool] | None, *, is_refused: bool
) -> None:
    """The same holds for agents without a model."""

    async def respond(_: Turn) -> AssistantMessage:
        return reply

    responder = Agent(id="agent", name="Agent", description="", respond=respond, output=City)
    async with ScriptedOpenAI() as provider, model_bench(provider, agent=responder) as bench:
        assert bool((await bench.run()).refused) is is_refused
        assert await shown(bench) == expected


async def test_an_output_model_that_fails_ends_the_call() -> None:
    """Nothing is shown, and the failure does not say what the answer was."""

    class Broken(BaseModel):
        """Fails."""

        name: str

        def model_post_init(self, context: object) -> None:
            raise RuntimeError(self.name)

    broken = Agent(id="agent", name="Agent", description="", output=Broken)
    async with (
        ScriptedOpenAI([Reply(['{"name": "Paris"}'])]) as provider,
        model_bench(provider, agent=broken) as bench,
    ):
        with pytest.raises(ApplicationError, match="'Broken' raised RuntimeError") as failed:
            await bench.run()

        assert failed.value.non_retryable
        assert "Paris" not in json.dumps([str(failed.value), *map(str, await bench.events())])
        assert await bench.response() is None
