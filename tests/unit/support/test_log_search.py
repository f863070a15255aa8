"""The search of logs finds content and secrets."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from tests.support.seeded_secrets import LogSearch, seed_secret, seed_text


@pytest.fixture
def logs() -> Iterator[Path]:
    """A directory of this test alone."""
    with TemporaryDirectory() as name:
        yield Path(name)


def line(level: str, text: str) -> str:
    return json.dumps({"level": level, "event": f'said "{text}"\n'}) + "\n"


@pytest.mark.parametrize("name", ["worker-0.log", "gateway-1.log", "below/worker-2.log.1"])
def test_a_text_that_was_said_is_found_in_logs_of_processes(name: str, logs: Path) -> None:
    """In each line once; lines below level info may contain it."""
    search, text = LogSearch(logs), seed_text(f"seeded text {uuid4()} ü")
    log = logs / name
    log.parent.mkdir(exist_ok=True)
    log.write_text(line("debug", text))
    assert search.leaks() == []
    with log.open("a") as more:
        more.write(line("info", text))

    assert [text in leak for leak in search.leaks()] == [True]
    assert search.leaks() == []


@pytest.mark.parametrize("level", ["debug", "error"])
def test_a_secret_is_found_at_every_level(level: str, logs: Path) -> None:
    """Also in a line that is not JSON."""
    secret = seed_secret(f"seeded secret {uuid4()}")
    (logs / "worker-0.log").write_text(line(level, secret) + f"Traceback: {secret}\n")

    assert len(LogSearch(logs).leaks()) == 2
