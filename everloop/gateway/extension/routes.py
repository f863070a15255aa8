"""The addresses of the HTTP extension, each with its handler."""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import approver_scopes
from everloop.gateway.context import Caller
from everloop.gateway.extension import contexts, deletions, fork, past, questions, schedules
from everloop.gateway.extension.operator.overview import Overview
from everloop.gateway.extension.operator.routes import Operator
from everloop.gateway.http.calls import Call, Handler, call_route
from everloop.gateway.services import Services
from everloop.runtime.protocol.tasks import HTTP_BASE


def extension_routes(services: Services) -> list[Route]:
    """Return the routes of the addresses beside A2A."""

    def route(
        path: str,
        authorize: Callable[[Caller], object] | None = None,
        **handlers: Callable[[Services, Call], Awaitable[Response]],
    ) -> Route:
        bound = {method: partial(handler, services) for method, handler in handlers.items()}
        return call_route(services.http, HTTP_BASE + path, authorize=authorize, **bound)

    overview = Overview(
        client=services.client,
        agents=services.agents,
        views=services.views,
        tasks=services.tasks,
        runs=services.runs,
    )
    operator = Operator(services, overview)

    def operated(path: str, **handlers: Handler) -> Route:
        path = f"{HTTP_BASE}/operator{path}"
        return call_route(services.http, path, authorize=operator.authorize, **handlers)

    return [
        route("/approvals", approver_scopes, GET=questions.list_approvals),
        route("/approvals/{task}/{question}", approver_scopes, POST=questions.answer_approval),
        route("/questions", GET=questions.list_questions),
        route("/tasks/{id}/events", GET=past.list_events),
        route("/tasks/{id}/transcript", GET=past.show_transcript),
        route("/tasks/{id}/usage", GET=past.show_usage),
        route("/tasks/{id}/children", GET=past.list_children),
        route("/tasks/{id}/fork", POST=fork.fork),
        route("/tasks/{id}", PATCH=contexts.change_task, DELETE=deletions.delete_task),
        route("/artifacts/{context}/{id}", DELETE=deletions.delete_artifact),
        route("/artifacts", GET=contexts.list_artifacts),
        route("/owner", DELETE=deletions.delete_owner),
        route("/deletions/{id}", GET=deletions.show_deletion),
        route("/contexts", GET=contexts.list_contexts),
        route("/contexts/{id}/messages", GET=contexts.list_messages),
        route(
            "/contexts/{id}",
            GET=contexts.show_context,
            PATCH=contexts.change_context,
            DELETE=deletions.delete_context,
        ),
        route("/schedules", GET=schedules.list_schedules, POST=schedules.create_schedule),
        route("/schedules/{id}:pause", POST=schedules.pause_schedule),
        route("/schedules/{id}:resume", POST=schedules.resume_schedule),
        route("/schedules/{id}:run", POST=schedules.run_schedule),
        route(
            "/schedules/{id}",
            GET=schedules.show_schedule,
            PATCH=schedules.change_schedule,
            DELETE=schedules.delete_schedule,
        ),
        operated("/tasks", GET=operator.list_tasks),
        operated("/tasks/{id}", GET=operator.show),
        operated("/tasks/{id}/resume", POST=operator.resume),
        operated("/tasks/{id}/skip", POST=operator.skip),
        operated("/tasks/{id}/reset", POST=operator.reset),
        operated("/tasks/{id}/cancel", POST=operator.cancel),
        operated("/tasks/{id}/approve", POST=operator.approve),
        operated("/system", GET=operator.show_system),
    ]
