"""Operators signal a task, and end a call that hangs or waits; wrong input gets an error."""

import asyncio

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.questions import Question, QuestionKind
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks, asks_writer
from tests.workflows.conftest import Handle, StartTask, current_details, say, user
from tests.workflows.people.writers import PARENT, writers_task

APPROVAL = '{"call_id": "a", "approved": true, "note": ""}'

REFUSED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "misspelt name": (
        "aprove",
        (APPROVAL,),
        "`aprove` was refused: there is no such signal; did you mean `approve`",
    ),
    "other case": ("Resume", (), "did you mean `resume`?"),
    "strange name": (
        "go`on\n# now",
        (),
        "`go'on # now` was refused: there is no such signal; there are `approve`, ",
    ),
    "no input": ("approve", (), f"`approve` was refused: it had no input; give it {APPROVAL}"),
    "two inputs": ("approve", (APPROVAL, APPROVAL), "it had 2 inputs; give it"),
    "a word": ("approve", ('"yes"',), "its input does not fit: Input should be a valid dictionary"),
    "no JSON": ("approve", ("{approved: yes}",), "its input is not JSON; give it"),
    "misspelt field": (
        "approve",
        ('{"call_id": "a", "aproved": true}',),
        "approved: Field required; aproved: Extra",
    ),
    "wrong type": (
        "approve",
        ('{"call_id": "a", "approved": "perhaps"}',),
        "approved: Input should be a valid boolean",
    ),
    "nothing failed": ("resume", (), "`resume` was refused: the task waits with no failure"),
    "nothing failed, with input": ("resume", ("null", "{}"), "`resume` was refused"),
    "internal": ("zz_internal_people_answer", ('"yes"',), "Internal"),
}


def asks_once(call: RunToolInput) -> ToolReply | None:
    """Make the call ask for an approval."""
    if call.answers:
        return None
    return Question(id=call.call.id, kind=QuestionKind.CONFIRMATION, text="May I?", call=call.call)


async def send(client: Client, handle: Handle, name: str, inputs: tuple[str, ...]) -> None:
    """Signal a task as the UI and the command line do: any input, as JSON."""
    payloads = [Payload(metadata={"encoding": b"json/plain"}, data=each.encode()) for each in inputs]
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id),
            signal_name=name,
            input=Payloads(payloads=payloads),
        )
    )


@pytest.mark.parametrize("case", REFUSED)
async def test_a_wrong_signal_is_noted_and_changes_nothing(
    start_task: StartTask, client: Client, case: str
) -> None:
    """The details have the reason and the right form; then the right signal works."""
    name, inputs, noted = REFUSED[case]
    tools = CountingTools(reply=asks_once)
    ports = FakePorts(ScriptedModel(asks(("a", "x")), answer("done")), tools)
    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await send(client, handle, name, inputs)
        details = await current_details(handle)
        await send(client, handle, "approve", (APPROVAL,))
        await handle.result()
        assert noted in details
        assert "- last signal: `approve` answered `a`" in await current_details(handle)
    assert [call.answers[0].by for call in tools.calls if call.answers] == ["operator"]


async def test_a_note_stays_with_the_task_and_changes_nothing(start_task: StartTask, client: Client) -> None:
    """The details show it; the model does not read it, and the call waits as before."""
    ports = FakePorts(ScriptedModel(asks(("a", "x")), answer("done")), CountingTools(reply=asks_once))
    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await send(client, handle, "note", ('{"note": "called again at once"}',))
        details = await current_details(handle)
        progress = await handle.query(AgentTask.progress)
        await send(client, handle, "approve", (APPROVAL,))
        await handle.result()
        transcript = (await handle.query(AgentTask.transcript)).model_dump_json()

    assert "- last signal: `note`: called again at once" in details
    assert progress.last_signal == "`note`: called again at once"
    assert (progress.pending_tools, progress.pending_calls) == (("x",), ("a",))
    assert "called again" not in transcript


UNSURE = " It may or may not have taken effect; check before you repeat it."


class _Hanging(CountingTools):
    """Tools of which those named `hangs` never end, and those named `asks` ask first."""

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        if call.call.name == "asks" and not call.answers:
            reply = Question(id=call.call.id, kind=QuestionKind.CONFIRMATION, text="May I?", call=call.call)
            await super().run_tool(call)
            return reply
        done = await super().run_tool(call)
        while call.call.name == "hangs":
            activity.heartbeat()
            await asyncio.sleep(0.05)
        return done


async def _results(handle: Handle) -> dict[str, ToolMessage]:
    page = await handle.query(AgentTask.transcript)
    return {message.call_id: message for message in page.messages if message.role == "tool"}


async def test_a_call_that_waits_for_people_is_skipped(start_task: StartTask) -> None:
    """Its question closes, named by the id of the call or of the question."""
    ports = FakePorts(ScriptedModel(asks(("a", "asks"), ("b", "asks")), answer("done")), _Hanging())
    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        await handle.signal("skip_call", {"call_id": "a"})
        await ports.publish.until_open(1, now=True)
        await say(handle, user("yes"))
        await handle.result()
        results = await _results(handle)
    assert (results["a"].content, results["a"].outcome) == ("an operator skipped this call", "rejected")
    assert results["b"].content == "b done"
    assert [call.call.id for call in ports.tools.calls].count("a") == 1


async def test_a_sub_agent_is_skipped(start_task: StartTask) -> None:
    """Its task is cancelled, and its questions close."""
    model = ScriptedModel(asks_writer("w"), asks(("q", "asks")), answer("done"))
    ports = FakePorts(model, _Hanging())
    async with start_task(ports, PARENT) as handle:
        await ports.publish.until(
            lambda: any(id_ == handle.id and status.questions for id_, status in ports.publish.by_task)
        )
        await handle.signal("skip_call", {"call_id": "w", "note": "not now"})
        result = await handle.result()
        results = await _results(handle)
    assert result.excerpt == "done"
    assert results["w"].content == f"an operator skipped this call: not now.{UNSURE}"
    last = [s for id_, s in ports.publish.by_task if id_ == writers_task(handle.id)][-1]
    assert last.state == "canceled"
    assert [status.questions for id_, status in ports.publish.by_task if id_ == handle.id][-1] == ()


async def test_which_call_is_skipped_has_to_be_clear(start_task: StartTask) -> None:
    """The details have the error and the remedy."""
    tools = _Hanging()
    ports = FakePorts(ScriptedModel(asks(("a", "hangs"), ("b", "hangs")), answer("done")), tools)

    async with start_task(ports) as handle:
        await asyncio.gather(tools.until_called("a"), tools.until_called("b"))
        await handle.signal("skip_call")
        nameless = await current_details(handle)
        await handle.signal("skip_call", {"call_id": "z"})
        unknown = await current_details(handle)
        await handle.signal("skip_call", {"call_id": "b"})
        await handle.signal("skip_call", {"call_id": "b", "note": "again"})
        await handle.signal("skip_call", {"call_id": "a"})
        await handle.result()

    assert (
        "`skip_call` was refused: 2 calls are pending; name one in `call_id`. Pending: a (hangs), b"
        in nameless
    )
    assert "`skip_call` was refused: no call 'z' is pending" in unknown
    assert "`skip_call` ends a call that hangs: `a` (hangs), `b` (hangs)" in unknown
    assert '{"call_id": "a", "note": ""}' in unknown
