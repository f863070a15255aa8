"""Composition root of the gateway process: settings → clients → the ASGI application."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from a2a.server.routes import create_agent_card_routes
from starlette.applications import Starlette
from starlette.routing import Route
from temporalio.client import Client

from agents.registry import AgentRegistry
from gateway.admission import Admission
from gateway.cancellation import cancel
from gateway.cards import agent_card
from gateway.downloads import Downloads
from gateway.endings import Endings
from gateway.event_fanout import EventFanout
from gateway.guards import Guards
from gateway.handler import Services, TaskHandler
from gateway.health import health_routes
from gateway.housekeeping import Housekeeping
from gateway.input_files import InputFiles
from gateway.jsonrpc import JsonRpcEndpoint
from gateway.problems import Problems
from gateway.push_operations import NoPush, PushOperations
from gateway.runs import Runs
from gateway.settings import GatewaySettings
from gateway.snapshots import Snapshots
from gateway.stores import Stores
from gateway.sweep import Sweep
from gateway.task_streams import TaskStreams
from gateway.tasks import Tasks

CARD_CACHE_CONTROL = "public, max-age=300"


def build_app(  # noqa: PLR0913 -- the parts of a gateway, each by its name
    settings: GatewaySettings,
    client: Client,
    stores: Stores,
    agents: AgentRegistry,
    *,
    guards: Guards | None = None,
    push: PushOperations | None = None,
    fanout: EventFanout | None = None,
) -> Starlette:
    """Wire the gateway. Without `guards` everybody may do everything; without `push` nobody is notified.

    Its `state.fanout` ends every open stream and waiting request when it is closed.
    """
    guards = guards or Guards()
    views = stores.views
    fanout = fanout or EventFanout(views)
    tasks = Tasks(client, settings.task_queue)
    runs = Runs(client)
    problems = Problems(views, runs)
    endings = Endings(stores, tasks, runs, problems, pause=fanout.idle_check)
    snapshots = Snapshots(stores, tasks, endings)
    sweep = Sweep(views, runs, endings, problems)
    handler = TaskHandler(
        Services(
            settings=settings,
            views=views,
            tasks=tasks,
            snapshots=snapshots,
            admission=Admission(agents, tasks, stores, snapshots, endings),
            streams=TaskStreams(snapshots, endings, fanout),
            endings=endings,
            files=InputFiles(stores.artifacts),
            agents=agents,
            push=push or NoPush(),
            extended_card=lambda agent: agent_card(agent, settings.url),
        )
    )
    endpoint = JsonRpcEndpoint(handler, max_body_bytes=settings.max_body_bytes)
    app = Starlette(
        routes=[
            Route("/", endpoint, methods=["POST"]),
            *create_agent_card_routes(
                agent_card(agents.default, settings.url), cache_control=CARD_CACHE_CONTROL
            ),
            *Downloads(stores, settings.url).routes,
            # Any call to the store will do as a probe; no task has an empty id.
            *health_routes({"temporal": tasks.check, "redis": lambda: views.load("")}),
        ],
        lifespan=lambda _: _working(fanout, endings, sweep, stores),
    )
    app.state.fanout = fanout
    return app


@asynccontextmanager
async def _working(
    fanout: EventFanout, endings: Endings, sweep: Sweep, stores: Stores
) -> AsyncGenerator[None]:
    """Run what serves no request in particular."""
    loops = [asyncio.create_task(fanout.run()), asyncio.create_task(sweep.run())]
    if stores.clean_up:
        loops.append(asyncio.create_task(Housekeeping(stores.clean_up).run()))
    try:
        yield
    finally:
        fanout.close()
        for loop in loops:
            await cancel(loop)
        await endings.close()
