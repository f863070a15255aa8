"""The addresses of the HTTP extension, each with its handler."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import groupby

from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import approver_scopes
from everloop.gateway.context import Caller
from everloop.gateway.extension import (
    context_handlers,
    deletion_handlers,
    fork,
    history_handlers,
    question_handlers,
    schedule_handlers,
)
from everloop.gateway.extension.operator.operator_routes import Operator
from everloop.gateway.extension.operator.overview import Overview
from everloop.gateway.http.http_calls import Handler, HttpCall, call_route
from everloop.gateway.services import Services
from everloop.workflows.contract.http_extension import HTTP_BASE, Address

_APPROVALS: Mapping[Address, Callable[[Services, HttpCall], Awaitable[Response]]] = {
    Address.LIST_APPROVALS: question_handlers.list_approvals,
    Address.ANSWER_APPROVAL: question_handlers.answer_approval,
}
_HANDLERS: Mapping[Address, Callable[[Services, HttpCall], Awaitable[Response]]] = {
    Address.LIST_QUESTIONS: question_handlers.list_questions,
    Address.LIST_EVENTS: history_handlers.list_events,
    Address.SHOW_TRANSCRIPT: history_handlers.show_transcript,
    Address.SHOW_USAGE: history_handlers.show_usage,
    Address.LIST_CHILDREN: history_handlers.list_children,
    Address.FORK_TASK: fork.fork,
    Address.CHANGE_TASK: context_handlers.change_task,
    Address.DELETE_TASK: deletion_handlers.delete_task,
    Address.DELETE_ARTIFACT: deletion_handlers.delete_artifact,
    Address.LIST_ARTIFACTS: context_handlers.list_artifacts,
    Address.DELETE_OWNER: deletion_handlers.delete_owner,
    Address.SHOW_DELETION: deletion_handlers.show_deletion,
    Address.LIST_CONTEXTS: context_handlers.list_contexts,
    Address.LIST_MESSAGES: context_handlers.list_messages,
    Address.SHOW_CONTEXT: context_handlers.show_context,
    Address.CHANGE_CONTEXT: context_handlers.change_context,
    Address.DELETE_CONTEXT: deletion_handlers.delete_context,
    Address.LIST_SCHEDULES: schedule_handlers.list_schedules,
    Address.CREATE_SCHEDULE: schedule_handlers.create_schedule,
    Address.PAUSE_SCHEDULE: schedule_handlers.pause_schedule,
    Address.RESUME_SCHEDULE: schedule_handlers.resume_schedule,
    Address.RUN_SCHEDULE: schedule_handlers.run_schedule,
    Address.SHOW_SCHEDULE: schedule_handlers.show_schedule,
    Address.CHANGE_SCHEDULE: schedule_handlers.change_schedule,
    Address.DELETE_SCHEDULE: schedule_handlers.delete_schedule,
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
    handlers: Mapping[Address, Callable[[Services, HttpCall], Awaitable[Response]]], services: Services
) -> Mapping[Address, Handler]:
    return {address: partial(handler, services) for address, handler in handlers.items()}
