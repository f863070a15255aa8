"""The supervisor starts processes in order, restarts those that die, and leaves none behind."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from everloop.local import child_process
from everloop.local.child_process import Service
from everloop.local.stack_errors import NotReadyError
from everloop.local.supervisor import Supervisor

SLEEP = ("sleep", "600")

TELLING = """
trap 'echo stop {name} >> {file}; exit' TERM
echo start {name} >> {file}
while :; do sleep 0.02; done
"""

STUBBORN = "trap '' TERM; touch {file}; while :; do sleep 0.02; done"


async def at_once(_since: float) -> bool:
    return True


async def never(_since: float) -> bool:
    return False


def holds(file: Path, text: str = "") -> Callable[[float], asyncio.Future[bool]]:
    """Return a readiness check: the file exists and contains the text."""

    async def check(_since: float) -> bool:
        return file.exists() and text in file.read_text()

    return lambda since: asyncio.ensure_future(check(since))


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@asynccontextmanager
async def supervising(
    services: Sequence[Service],
    directory: Path,
    said: list[str] | None = None,
    *,
    ready_timeout: float = 30,
    stop_timeout: float = 30,
) -> AsyncGenerator[Supervisor]:
    lines = [] if said is None else said
    supervisor = Supervisor(
        services, directory / "logs", lines.append, ready_timeout=ready_timeout, stop_timeout=stop_timeout
    )
    try:
        await supervisor.start()
        yield supervisor
    finally:
        await supervisor.stop()


async def test_services_start_behind_what_they_need_and_stop_in_reverse(tmp_path: Path) -> None:
    """Each begins once those it needs are ready, though it may have loaded before, and stops first."""
    file = tmp_path / "order"
    services = [
        Service(
            name,
            ("sh", "-c", (f"read line; test $line = begin || exit; {TELLING}").format(name=name, file=file)),
            holds(file, f"start {name}"),
            needs=needs,
            is_prepared=True,
        )
        for name, needs in (("a", ()), ("b", ("a",)), ("c", ("a", "b")))
    ]

    async with supervising(services, tmp_path):
        assert file.read_text().split() == ["start", "a", "start", "b", "start", "c"]

    assert file.read_text().splitlines()[3:] == ["stop c", "stop b", "stop a"]


async def test_a_killed_service_is_started_again_later_each_time(tmp_path: Path) -> None:
    """Each death is reported with cause and delay, which doubles until it stays up, and so is each return."""
    said: list[str] = []
    pids: list[int] = []
    async with supervising([Service("a", SLEEP, at_once)], tmp_path, said) as supervisor:
        for _ in range(2):
            pids.append(supervisor.pid("a"))
            await supervisor.kill("a")
            assert is_gone(pids[-1])
            await supervisor.wait_until_ready("a")
        pids.append(supervisor.pid("a"))

    assert len(set(pids)) == 3
    assert said[1:] == [
        "a ended (SIGKILL); it is started again in 0.5 s",
        f"a runs again (process {pids[1]})",
        "a ended (SIGKILL); it is started again in 1 s",
        f"a runs again (process {pids[2]})",
    ]
    assert is_gone(pids[-1])


async def test_a_full_disk_is_said_since_no_log_can_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that cannot write ends, and its log is on the same disk."""
    said: list[str] = []

    def disk_usage(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(folder=folder, free=4096)

    monkeypatch.setattr(child_process, "disk_usage", disk_usage)
    async with supervising([Service("a", SLEEP, at_once)], tmp_path, said) as supervisor:
        await supervisor.kill("a")
        await supervisor.wait_until_ready("a")

    assert said[1].startswith(f"a ended (SIGKILL: no space is left on the disk of {tmp_path / 'logs'});")


async def test_a_service_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """After the stop timeout comes SIGKILL, and a line that says so."""
    file, said = tmp_path / "up", list[str]()
    service = Service("a", ("sh", "-c", STUBBORN.format(file=file)), holds(file))
    async with supervising([service], tmp_path, said, stop_timeout=0.2) as supervisor:
        pid = supervisor.pid("a")

    assert said[-1] == "a did not stop within 0.2 s; it is killed"
    assert is_gone(pid)


@pytest.mark.parametrize(
    ("command", "patience", "message"),
    [
        (
            ("sh", "-c", "echo the reason; exit 3"),
            30,
            r"b ended \(exit code 3\) while it started[^~]*the reason",
        ),
        (("sh", "-c", "echo the reason; sleep 600"), 3, r"b was not ready after 3 s[^~]*the reason"),
        (("no-such-command",), 30, "b cannot be started: .*no-such-command"),
    ],
)
async def test_a_service_that_does_not_start_is_an_error_with_its_log(
    tmp_path: Path, command: Sequence[str], patience: float, message: str
) -> None:
    """The error names the service and has the end of its log; earlier ones are stopped in the end."""
    services = [Service("a", SLEEP, at_once), Service("b", command, never, needs=("a",))]
    pids: list[int] = []
    supervisor = Supervisor(services, tmp_path, lambda _: None, ready_timeout=patience)
    try:
        with pytest.raises(NotReadyError, match=message):
            await supervisor.start()
        pids = [supervisor.pid("a"), supervisor.pid("b")]
    finally:
        await supervisor.stop()
    assert all(is_gone(pid) for pid in pids if pid)
