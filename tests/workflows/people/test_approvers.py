"""Approvals that somebody else than the client has to give."""

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import text_of
from everloop.workflows.contract.questions import Approval, ApproverAnswer
from everloop.workflows.contract.tasks import Identity
from tests.workflows.conftest import StartTask, say, user
from tests.workflows.people.asking import asking


def approver(**said: object) -> ApproverAnswer:
    """What somebody says whom question `a` asks in the owner's place."""
    known = {"question_id": "a", "scope": "tasks:approve", "approved": True, "approver": "ann"}
    who = {"owner": "supervisors", "scheme": "apiKey", "subject": "k1"}
    return ApproverAnswer.model_validate({**known, **who, **said})


BOSS: dict[str, object] = {"purpose": "approval", "approvers": "tasks:approve"}


async def test_an_approval_may_be_somebody_elses(start_task: StartTask) -> None:
    """The owner reads who is asked, and cannot answer; the history tells who did, and when."""
    ports = asking("a", "b", a=BOSS, b={"kind": "clarification", "text": "Why?"})

    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        owners = user("yes").model_copy(update={"answers": "a"})
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(AgentTask.add_message, owners)
        await handle.execute_update(AgentTask.take_approvers_answer, approver(note="go"))
        await say(handle, user("Because.").model_copy(update={"answers": "b"}))
        await handle.result()
        view = await handle.query(AgentTask.view)

    assert isinstance(refused.value.cause, ApplicationError)
    assert "this waits for somebody with the scope tasks:approve" in refused.value.cause.message
    asked = next(status for status in ports.publish.statuses if len(status.questions) == 2)
    assert asked.message
    waits = "May I?\n(this waits for somebody with the scope tasks:approve; nobody else can answer it)"
    assert text_of(asked.message.parts) == f"Why?\n(answer in a text or data part)\n\n{waits}"
    assert {q.id: q.asked_at is not None for q in asked.questions} == {"a": True, "b": False}
    (given,) = next(call.answers for call in ports.tools.calls if call.call.id == "a" and call.answers)
    assert (given.approved, given.note, given.by, given.approver) == (True, "go", "approver", "ann")
    (told,) = [message for message in view.history if "approval" in message.metadata]
    assert text_of(told.parts) == "approved by ann (tasks:approve): go"
    assert told.role == "agent"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"question_id": "z"}, "no question 'z' is open any more"),
        ({"scope": "refunds:approve"}, "for those with the scope refunds:approve"),
        ({"owner": "owner", "subject": "client"}, "these credentials began the task"),
    ],
)
async def test_an_approver_has_to_be_asked(
    start_task: StartTask, said: dict[str, object], words: str
) -> None:
    """Nobody answers for a scope that is not asked, nor what they have asked for themselves."""
    ports = asking("a", a=BOSS)
    began = {"identity": Identity(scheme="apiKey", subject="client")}
    async with start_task(ports, changes=began) as handle:
        await ports.publish.until_asked()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(AgentTask.take_approvers_answer, approver(**said))
        await handle.signal(AgentTask.approve, Approval(approved=True))
        await handle.result()
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == failures.INVALID_ANSWER
    assert words in refused.value.cause.message
    assert [given.by for given in ports.tools.calls[1].answers] == ["operator"]
