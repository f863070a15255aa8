"""Signals say what they did: Temporal takes any, and tells its sender nothing."""

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client

from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.questions import Question, QuestionKind
from everloop.workflows.people import OPERATOR_SIGNALS
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import Handle, StartTask, current_details

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
    """Let the call ask whether it may run."""
    if call.answers:
        return None
    return Question(id=call.call.id, kind=QuestionKind.CONFIRMATION, text="May I?", call=call.call)


async def send(client: Client, handle: Handle, name: str, inputs: tuple[str, ...]) -> None:
    """Signal a task as the UI and the command line do: whatever was typed, as JSON."""
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
    """Whatever was typed: the details say why it was refused and what to send; then the right one works."""
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


async def test_signals_of_operators_are_listed_apart(start_task: StartTask) -> None:
    """Each says what it is for; those that tasks send each other stand behind them and say so."""
    async with start_task(FakePorts(ScriptedModel(answer("done")))) as handle:
        await handle.result()
        listed = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    signals = {each.name: each.description for each in listed.definition.signal_definitions if each.name}
    assert all(signals.values())
    internal = [name for name, description in signals.items() if description.startswith("Internal")]
    assert internal == list(signals)[-len(internal) :]
    assert [name for name in signals if name not in internal] == sorted(OPERATOR_SIGNALS)
    assert all(
        each.description for each in listed.definition.query_definitions if not each.name.startswith("__")
    )
