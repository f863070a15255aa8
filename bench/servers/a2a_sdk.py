"""a2a-sdk's own server, the peer of the gateway: `python -m bench.servers.a2a_sdk PORT [DATABASE]`.

Tasks are kept in memory, or in a SQLite file.
"""

import sys
from importlib import import_module

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, Task, TaskState, TaskStatus
from a2a.utils.errors import TaskNotCancelableError
from starlette.applications import Starlette

from everloop.local.servers import LOOPBACK


class Done(AgentExecutor):
    """An agent that completes at once."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        assert context.message
        submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        task = Task(
            id=context.task_id, context_id=context.context_id, status=submitted, history=[context.message]
        )
        await event_queue.enqueue_event(task)
        await TaskUpdater(event_queue, context.task_id, context.context_id).complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Reject the request: the task has always ended before."""
        raise TaskNotCancelableError


def _store(database: str) -> TaskStore:
    if not database:
        return InMemoryTaskStore()
    # Only here: this side needs sqlalchemy and aiosqlite, and no other module does.
    tasks = import_module("a2a.server.tasks")
    engine = import_module("sqlalchemy.ext.asyncio").create_async_engine(f"sqlite+aiosqlite:///{database}")
    return tasks.DatabaseTaskStore(engine)


def main(port: int, database: str = "") -> None:
    """Serve until killed."""
    card = AgentCard(name="done", version="1", capabilities=AgentCapabilities(streaming=True))
    handler = DefaultRequestHandler(agent_executor=Done(), task_store=_store(database), agent_card=card)
    app = Starlette(routes=create_jsonrpc_routes(handler, "/"))
    uvicorn.run(app, host=LOOPBACK, port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
