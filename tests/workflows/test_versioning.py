"""Builds of the worker: a task ends on the build that it began on."""

from uuid import uuid4

from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.questions import Question, QuestionKind
from tests.support.fakes.ports import TASK_WORK, CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import say, start_workflow, unique_queue, user


async def make_current(client: Client, deployment: str, build_id: str) -> None:
    """Let new tasks go to a build as soon as its worker is there."""
    service = client.workflow_service
    while True:
        try:
            await service.describe_worker_deployment(
                DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
            )
            await service.set_worker_deployment_current_version(
                SetWorkerDeploymentCurrentVersionRequest(
                    namespace=client.namespace, deployment_name=deployment, build_id=build_id
                )
            )
        except RPCError as error:
            if error.status not in {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION}:
                raise
        else:
            return


def asks_once(call: RunToolInput) -> ToolReply | None:
    if call.answers:
        return None
    return Question(id=call.call.id, kind=QuestionKind.CONFIRMATION, text="May I?", call=call.call)


async def test_a_task_ends_on_the_build_it_began_on(client: Client) -> None:
    """Old tasks finish on old code while new ones start on new code."""
    queue, deployment = unique_queue(), f"everloop-{uuid4()}"
    old = FakePorts(ScriptedModel(asks(("a", "x")), answer("old")), CountingTools(reply=asks_once))
    new = FakePorts(ScriptedModel(answer("new")))

    def settings(build_id: str) -> WorkerSettings:
        return WorkerSettings(task_queue=queue, deployment=deployment, build_id=build_id, shutdown_grace=0)

    async with running_workers(client, old.wired(), settings("1"), TASK_WORK):
        await make_current(client, deployment, "1")
        first = await start_workflow(client, queue)
        await old.publish.until_asked()
        async with running_workers(client, new.wired(), settings("2"), TASK_WORK):
            await make_current(client, deployment, "2")
            second = await start_workflow(client, queue, task_id=f"{queue}-2")
            result = await second.result()
            await say(first, user("yes"))
            outcome = await first.result()

    assert (outcome.excerpt, result.excerpt) == ("old", "new")
    assert (len(old.model.calls), len(new.model.calls)) == (2, 1)
