"""A client without asyncio in a process that forks, as gunicorn with `preload` and Celery do."""

import subprocess
import sys

FORKS = """
import os, sys
from everloop.client import SyncClient

with SyncClient("http://127.0.0.1:9") as client:
    child = os.fork()
    if not child:
        try:
            client.card()
        except RuntimeError as error:
            print(error, flush=True)
        client.close()
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_client_refuses_the_process_that_was_forked_from_its_own() -> None:
    """Its thread is not in the child: it would wait for ever. The parent's client goes on, and ends."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True
    )

    assert ended.stdout.splitlines() == [
        "the client belongs to the process that this one was forked from; make another one after the fork",
        "3",
    ]
