"""Rebuild what Redis shows of tasks from Temporal: `python -m deploy.reindex`."""

import argparse
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uvloop
from pydantic import ValidationError
from redis.exceptions import RedisError
from temporalio.client import Client
from temporalio.service import RPCError

from deploy.reindex.progress import Progress
from deploy.reindex.rebuild import Rebuild
from deploy.reindex.shown_tasks import Chosen, shown_tasks
from deploy.schedule.__main__ import INTERRUPTED, QueueSettings
from gateway.endings import Endings
from gateway.problems import Problems
from gateway.runs import Runs
from gateway.stores import Stores
from gateway.tasks import Tasks
from stores.artifact_settings import ArtifactSettings, make_artifacts
from stores.blob_settings import BlobSettings, opened_blobs
from stores.blobs import BlobsUnfitError
from stores.redis_connection import RedisUnfitError, StoreSettings, check_redis, connect_redis
from stores.redis_secrets import RedisSecrets
from stores.redis_task_views import RedisTaskViews
from stores.redis_transcripts import RedisTranscripts
from stores.retention import RetentionSettings
from stores.setting_names import report_unknown
from stores.settings_errors import explain
from stores.temporal_connection import TemporalUnreachableError, connect_temporal

AT_ONCE = 10

EPILOG = """\
Run it when Redis was lost, while workers and gateways run: workers answer for their tasks. Run it again,
from the beginning, as often as you like: nothing that is newer is overwritten. Servers are found as workers
from stores.setting_names import report_unknown
and gateways find them (TEMPORAL_ADDRESS, EVERLOOP_REDIS_URL, EVERLOOP_BLOBS and what belongs to it). What it
brings back, and what not, is told in docs/housekeeping.md."""


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.reindex",
        description="Rebuild the views and lists of tasks in Redis from Temporal.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--agent", default="", metavar="ID", help="only tasks of this agent")
    parser.add_argument("--owner", default="", help="only tasks of this owner")
    parser.add_argument(
        "--at-once",
        type=_count,
        default=AT_ONCE,
        metavar="N",
        help="how many tasks are asked at once (default %(default)s); each costs a worker a replay",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:  # noqa: PLR2004 -- as the message says
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1000")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rebuild all that is to be shown and return the exit code: 1 if something was not restored."""
    asked = parser().parse_args(arguments)
    report_unknown("reindex")
    try:
        return uvloop.run(_run(asked))
    except (BlobsUnfitError, RedisUnfitError, TemporalUnreachableError) as error:
        return _fail(str(error))
    except ValidationError as error:
        return _fail(f"wrong setting: {explain(error)}")
    except RPCError as error:
        return _fail(f"Temporal does not list tasks ({error.status.name}: {error.message}); run it again")
    except (RedisError, OSError) as error:
        return _fail(f"Redis does not answer: {error}; run it again")
    except KeyboardInterrupt:
        return _fail("interrupted; what is done stays done: run it again for the rest", INTERRUPTED)


async def _run(asked: argparse.Namespace) -> int:
    settings = RetentionSettings()
    ended_since = datetime.now(UTC) - settings.task_ttl
    chosen = Chosen(QueueSettings().task_queue, asked.agent, asked.owner, ended_since)
    progress = Progress(sys.stderr)
    async with _rebuild(settings, asked.at_once, progress) as (rebuild, client):
        async for page in shown_tasks(client, chosen):
            await rebuild.restore(page)
    progress.end()
    for task_id, reason in sorted(progress.failed.items()):
        _fail(f"task {task_id} not restored: {reason}")
    print(progress.summary)
    return 1 if progress.failed else 0


@asynccontextmanager
async def _rebuild(
    settings: RetentionSettings, at_once: int, progress: Progress
) -> AsyncGenerator[tuple[Rebuild, Client]]:
    async with connect_redis(StoreSettings().redis_url) as redis:
        await check_redis(redis)
        async with opened_blobs(BlobSettings(), redis) as blobs:
            client = await connect_temporal((), blobs)
            # Nobody is notified: what is restored is not news.
            views = RedisTaskViews(redis, ttl=settings.task_ttl, max_bytes=settings.max_task_bytes)
            artifacts = make_artifacts(ArtifactSettings(), redis, blobs, views)
            stores = Stores(views, RedisSecrets(redis), artifacts, RedisTranscripts(redis))
            tasks, runs = Tasks(client, QueueSettings().task_queue), Runs(client)
            endings = Endings(stores, tasks, runs, Problems(views, runs))
            yield Rebuild(stores, tasks, endings, progress, at_once=at_once), client


def _fail(text: str, exit_code: int = 1) -> int:
    print(f"reindex: {text}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(exit_code)
