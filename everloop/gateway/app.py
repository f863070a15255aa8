"""Composition root of the gateway process: settings → clients → the ASGI application."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from temporalio.client import Client

from everloop.agents.registry import AgentRegistry
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.jsonrpc import JsonRpcEndpoint
from everloop.gateway.bindings.legacy import legacy_rest_calls
from everloop.gateway.bindings.rest import RestCalls, RestEndpoint, rest_calls
from everloop.gateway.cards.card_routes import card_routes
from everloop.gateway.cards.cards import Cards, CardSettings
from everloop.gateway.cards.page import home_route
from everloop.gateway.cards.signing import CardKey
from everloop.gateway.console.console_routes import console_routes
from everloop.gateway.downloads.download_routes import download_routes
from everloop.gateway.extension.codec_routes import codec_routes
from everloop.gateway.extension.extension_routes import extension_routes
from everloop.gateway.extension.health import Gauges, health_routes
from everloop.gateway.http.http_calls import RawRoute
from everloop.gateway.http.http_errors import failed, unserved
from everloop.gateway.http.origins import page_rules
from everloop.gateway.http.requests import BodyLimits, HttpContext
from everloop.gateway.operations.admission import Admission
from everloop.gateway.operations.handler import TaskHandler
from everloop.gateway.operations.input_files import InputFiles
from everloop.gateway.operations.operation import OpenStreams
from everloop.gateway.operations.push import PushOperations
from everloop.gateway.operations.question_answers import Answers
from everloop.gateway.services import Probe, Services
from everloop.gateway.settings import Attachments, GatewaySettings, Stores
from everloop.gateway.tasks.fanout import EventFanout
from everloop.gateway.tasks.history import Histories
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.snapshots import Snapshots
from everloop.gateway.tasks.streams import TaskStreams
from everloop.gateway.tasks.sweep import SWEEP_PAUSE, Sweep
from everloop.gateway.tasks.task_steps import TaskSteps
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.gateway.tasks.workflow_runs import Runs
from everloop.runtime.redis import cancel
from everloop.runtime.schedules.schedules import Schedules
from everloop.runtime.temporal.deletions import Deletions

if TYPE_CHECKING:
    from a2a.server.request_handlers.request_handler import RequestHandler


def build_app(  # noqa: PLR0913 -- the parts of a gateway, each by its name
    settings: GatewaySettings,
    client: Client,
    stores: Stores,
    agents: AgentRegistry,
    attachments: Attachments,
    *,
    access: AccessControl | None = None,
    push: PushOperations | None = None,
    fanout: EventFanout | None = None,
    card_key: CardKey | None = None,
    measures: bool = False,
) -> Starlette:
    """Wire the gateway. Without `access` there is no authentication; without `push` no notifications.

    `measures`: metrics are read, for which servers are probed.

    Closing its `state.fanout` ends every open stream and waiting request. Its `state.handler` serves
    the calls of every binding.
    """
    access = access or AccessControl()
    schemes = access.authenticator.security_schemes()
    card_settings = CardSettings(settings.url, settings.grpc_address, push is not None, schemes)
    cards = Cards(agents, card_settings, card_key)
    views = stores.views
    fanout = fanout or EventFanout(views)
    tasks = Tasks(client, settings.task_queue, splits_queues=settings.split_queues)
    runs = Runs(client)
    reconciler = Reconciler(stores, tasks, runs, pause=fanout.idle_check)
    snapshots = Snapshots(stores, tasks, reconciler)
    sweep = Sweep(views, runs, reconciler, pause=min(SWEEP_PAUSE, fanout.idle_check))
    steps = TaskSteps(stores.transcripts, tasks, settings.url)
    files = InputFiles(stores.artifacts)
    admission = Admission(
        views=views,
        tasks=tasks,
        snapshots=snapshots,
        reconciler=reconciler,
        answers=Answers(stores.secrets),
        files=files,
        limits=access.limits,
    )
    tasks_handler = TaskHandler(
        settings=settings,
        agents=agents,
        open_streams=OpenStreams(settings.max_streams, settings.max_streams_per_owner),
        views=views,
        tasks=tasks,
        snapshots=snapshots,
        admission=admission,
        streams=TaskStreams(snapshots, reconciler, fanout),
        reconciler=reconciler,
        files=files,
        steps=steps,
        push=push,
        extended_card=cards.extended,
    )
    handler = cast("RequestHandler", tasks_handler)
    hosts = {settings.host, urlsplit(settings.url).hostname or ""}
    http = HttpContext(access, BodyLimits(settings.max_body_bytes), lambda: fanout.is_closed)
    # Any call to the store is a probe; no task has an empty id.
    probes: dict[str, Probe] = {"temporal": tasks.check, "redis": lambda: views.load("-")}
    services = Services(
        settings=settings,
        client=client,
        agents=agents,
        stores=stores,
        http=http,
        tasks=tasks,
        runs=runs,
        reconciler=reconciler,
        snapshots=snapshots,
        histories=Histories(client, views),
        steps=steps,
        admission=admission,
        push=push,
        deletions=Deletions(client, settings.task_queue),
        schedules=Schedules(client, settings.task_queue),
        attachments=attachments,
        probes=probes,
    )
    loops = [fanout.run, sweep.run]
    if measures:
        loops.append(Gauges(client, (agent.id for agent in agents), probes).run)
    app = Starlette(
        routes=[
            *card_routes(cards),
            home_route(cards, settings.url),
            *download_routes(services),
            *extension_routes(services),
            *codec_routes(services),
            *health_routes(probes),
            *(console_routes(settings.url) if settings.console else ()),
            # Last: the first segment of some of these addresses is a client's choice.
            *_binding_routes(handler, http, agents),
        ],
        exception_handlers={HTTPException: unserved, Exception: failed},
        middleware=page_rules(settings.cors_origins, hosts, is_open=services.is_open),
        lifespan=lambda _: _working(loops, fanout, reconciler),
    )
    app.router.redirect_slashes = False
    app.state.fanout = fanout
    app.state.handler = handler
    return app


@asynccontextmanager
async def _working(
    loops: Iterable[Callable[[], Coroutine[Any, Any, None]]], fanout: EventFanout, reconciler: Reconciler
) -> AsyncGenerator[None]:
    """Run the background work of the process."""
    running = [asyncio.create_task(loop()) for loop in loops]
    try:
        yield
    finally:
        fanout.close()
        for loop in running:
            await cancel(loop)
        await reconciler.close()


# The addresses of all bindings over HTTP, at the root and at each agent's own address.
#
# A2A 1.0 §5.3 maps operations to methods and addresses. The endpoint finds the agent of `/agents/{agent}/…`.

_AGENT = "/agents/{agent}"


def _binding_routes(handler: "RequestHandler", http: HttpContext, agents: AgentRegistry) -> list[Route]:
    """Return the routes of JSON-RPC and HTTP+JSON, in both versions.

    Longer addresses come first, so that no tenant is read as the first segment of one.
    """
    jsonrpc = JsonRpcEndpoint(http, agents, handler)
    routes = [Route(path, jsonrpc, methods=["POST"]) for path in ("/", _AGENT, f"{_AGENT}/")]

    def add(prefix: str, addresses: RestCalls, version: str) -> None:
        for path, calls in addresses.items():
            endpoint = RestEndpoint(http, agents, calls, version)
            routes.append(RawRoute(prefix + path, endpoint, methods=list(calls)))

    for prefix in (_AGENT, ""):
        add(prefix, legacy_rest_calls(handler), PROTOCOL_VERSION_0_3)
        add(prefix, rest_calls(handler), PROTOCOL_VERSION_1_0)
        add(f"{prefix}/{{tenant}}", rest_calls(handler), PROTOCOL_VERSION_1_0)
    return routes
