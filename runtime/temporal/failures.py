"""What an error of Temporal is about."""

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.service import RPCError, RPCStatusCode


def says_workflow_unknown(error: RPCError) -> bool:
    """Whether the server has no such workflow.

    A server whose database is slow, as after a pause, says for a moment that it has no such namespace. That
    is NOT_FOUND too, and tells nothing of the workflow.
    """
    return error.status is RPCStatusCode.NOT_FOUND and not says_namespace_unknown(error)


def says_namespace_unknown(error: RPCError) -> bool:
    """Whether the server does not know its namespace, which it did when this process began."""
    details = (each.type_url.rpartition("/")[2] for each in error.grpc_status.details)
    return NamespaceNotFoundFailure.DESCRIPTOR.full_name in details
