"""Clean up now, or see when it is done by itself: `python -m deploy.housekeeping run|status`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import timedelta

import uvloop
from pydantic import ValidationError

from deploy.housekeeping.runs import ANSWER_TIMEOUT, RUN_TIMEOUT, HousekeepingError, HousekeepingRuns
from deploy.housekeeping.table import failures, status_lines, table
from deploy.schedule.__main__ import INTERRUPTED, QueueSettings
from stores.encryption import EncryptionError
from stores.setting_names import report_unknown
from stores.settings_errors import explain
from stores.temporal_connection import TemporalUnreachableError, connect_temporal

NOTICE = 5.0
"""Seconds after which a run says what it waits for."""

EPILOG = """\
A schedule of Temporal does the same every five minutes. Temporal is found as workers find it
(TEMPORAL_ADDRESS), EVERLOOP_TASK_QUEUE has to be theirs, and a worker has to run. What is removed when is
told in docs/housekeeping.md."""


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.housekeeping",
        description="Remove what nobody needs any more, or see when that is done by itself.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="clean up now, and show what was removed")
    run.add_argument("--dry-run", action="store_true", help="remove nothing; show what would be removed now")
    commands.add_parser("status", help="show when the schedule runs next, and how its last runs went")
    return parser


def main(arguments: Sequence[str] | None = None, patience: timedelta = RUN_TIMEOUT) -> int:
    """Run one command and return the exit code: 1 if something could not be done; what is wrong is one line.

    `patience` is how long a run may take (default 1 h); what is only asked of Temporal has 10 s.
    """
    asked = parser().parse_args(arguments)
    report_unknown("housekeeping")
    try:
        return uvloop.run(_run(asked, patience))
    except (EncryptionError, HousekeepingError, TemporalUnreachableError) as error:
        return _fail(str(error))
    except ValidationError as error:
        return _fail(f"wrong setting: {explain(error)}")
    except KeyboardInterrupt:
        return _fail("interrupted; a run that has begun goes on", INTERRUPTED)


async def _run(asked: argparse.Namespace, patience: timedelta) -> int:
    queue = QueueSettings().task_queue
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT.total_seconds()):
            runs = HousekeepingRuns(await connect_temporal(), queue)
    except TimeoutError as error:
        raise HousekeepingError.of_silence(ANSWER_TIMEOUT) from error
    if asked.command == "status":
        print(status_lines(await runs.status()))
        return 0
    notice = asyncio.get_running_loop().call_later(
        NOTICE, _tell, f"a worker of the queue {queue} (EVERLOOP_TASK_QUEUE) has to do it; waiting"
    )
    try:
        result = await runs.run(patience, dry_run=asked.dry_run)
    finally:
        notice.cancel()
    print(table(result))
    for line in failures(result):
        _tell(line)
    return 1 if failures(result) else 0


def _fail(text: str, exit_code: int = 1) -> int:
    _tell(text)
    return exit_code


def _tell(text: str) -> None:
    print(f"housekeeping: {text}", file=sys.stderr)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(exit_code)
