"""The addresses of the HTTP extension, each with its handler."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import groupby

from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import approver_scopes
from everloop.gateway.context import Caller
from everloop.gateway.extension import contexts, deletions, fork, past, questions, schedules
from everloop.gateway.extension.operator.overview import Overview
from everloop.gateway.extension.operator.routes import Operator
from everloop.gateway.http.calls import Call, Handler, call_route
from everloop.gateway.services import Services
from everloop.workflows.contract.http_extension import HTTP_BASE, Address

_APPROVALS: Mapping[Address, Callable[[Services, Call], Awaitable[Response]]] = {
    Address.LIST_APPROVALS: questions.list_approvals,
    Address.ANSWER_APPROVAL: questions.answer_approval,
}
_HANDLERS: Mapping[Address, Callable[[Services, Call], Awaitable[Response]]] = {
    Address.LIST_QUESTIONS: questions.list_questions,
    Address.LIST_EVENTS: past.list_events,
    Address.SHOW_TRANSCRIPT: past.show_transcript,
    Address.SHOW_USAGE: past.show_usage,
    Address.LIST_CHILDREN: past.list_children,
    Address.FORK_TASK: fork.fork,
    Address.CHANGE_TASK: contexts.change_task,
    Address.DELETE_TASK: deletions.delete_task,
    Address.DELETE_ARTIFACT: deletions.delete_artifact,
    Address.LIST_ARTIFACTS: contexts.list_artifacts,
    Address.DELETE_OWNER: deletions.delete_owner,
    Address.SHOW_DELETION: deletions.show_deletion,
    Address.LIST_CONTEXTS: contexts.list_contexts,
    Address.LIST_MESSAGES: contexts.list_messages,
    Address.SHOW_CONTEXT: contexts.show_context,
    Address.CHANGE_CONTEXT: contexts.change_context,
    Address.DELETE_CONTEXT: deletions.delete_context,
    Address.LIST_SCHEDULES: schedules.list_schedules,
    Address.CREATE_SCHEDULE: schedules.create_schedule,
    Address.PAUSE_SCHEDULE: schedules.pause_schedule,
    Address.RESUME_SCHEDULE: schedules.resume_schedule,
    Address.RUN_SCHEDULE: schedules.run_schedule,
    Address.SHOW_SCHEDULE: schedules.show_schedule,
    Address.CHANGE_SCHEDULE: schedules.change_schedule,
    Address.DELETE_SCHEDULE: schedules.delete_schedule,
}


def extension_routes(services: Services) -> list[Route]:
    """Return the routes of the addresses beside A2A."""

    def routes(
        handlers: Mapping[Address, Handler], authorize: Callable[[Caller], object] | None = None
    ) -> list[Route]:
        return [
            call_route(
                services.http,
                HTTP_BASE + path,
                authorize=authorize,
                **{address.method: handlers[address] for address in of_path},
            )
            for path, of_path in groupby(handlers, key=lambda address: address.path)
        ]

    overview = Overview(
        client=services.client,
        agents=services.agents,
        views=services.views,
        tasks=services.tasks,
        runs=services.runs,
    )
    operator = Operator(services, overview)
    operated: Mapping[Address, Handler] = {
        Address.LIST_OPERATOR_TASKS: operator.list_tasks,
        Address.SHOW_OPERATOR_TASK: operator.show,
        Address.RESUME_TASK: operator.resume,
        Address.SKIP_CALL: operator.skip,
        Address.RESET_TASK: operator.reset,
        Address.CANCEL_TASK: operator.cancel,
        Address.APPROVE_CALL: operator.approve,
        Address.SHOW_SYSTEM: operator.show_system,
    }
    return [
        *routes(_bound(_APPROVALS, services), approver_scopes),
        *routes(_bound(_HANDLERS, services)),
        *routes(operated, operator.authorize),
    ]


def _bound(
    handlers: Mapping[Address, Callable[[Services, Call], Awaitable[Response]]], services: Services
) -> Mapping[Address, Handler]:
    return {address: partial(handler, services) for address, handler in handlers.items()}
