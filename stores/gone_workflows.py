"""Which workflows Temporal no longer knows."""

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure, NotFoundFailure
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

_UNQUOTABLE = frozenset("'\"\\")
"""Ids with these are not asked for: what a query makes of them is nobody's promise."""


async def is_gone(client: Client, workflow_id: str) -> bool:
    """Whether Temporal has no workflow of this id, open or closed, nor one whose id goes on with a slash.

    The first is asked of the history service, which knows every workflow at once; of the others, which tasks
    start, visibility tells. Whatever is not a clear answer is an error.

    Raises:
        RPCError: Temporal does not tell.
    """
    if _UNQUOTABLE & set(workflow_id):
        return False
    # The SDK's own `describe` fails for a workflow that an operator has paused.
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    try:
        await client.workflow_service.describe_workflow_execution(request, retry=True)
    except RPCError as error:
        if not _says_not_found(error):
            raise
    else:
        return False
    children = await client.count_workflows(f"WorkflowId STARTS_WITH '{workflow_id}/'")
    return not children.count


def _says_not_found(error: RPCError) -> bool:
    """Whether the server says that there is no such workflow; proxies answer NOT_FOUND for other reasons."""
    if error.status is not RPCStatusCode.NOT_FOUND:
        return False
    details = [each.type_url.rpartition("/")[2] for each in error.grpc_status.details]
    has_no_namespace = NamespaceNotFoundFailure.DESCRIPTOR.full_name in details
    return NotFoundFailure.DESCRIPTOR.full_name in details and not has_no_namespace
