"""The local stack and the demo as users run them: separate processes, real signals."""

import asyncio
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import TASK_STATE_COMPLETED
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from everloop.client import Client, Result, TaskState, TextDelta
from everloop.local.demo_model.script import SCRIPTED
from everloop.local.servers import LOOPBACK, free_port
from tests.acceptance.cli.terminal import Ran, Shell
from tests.support.a2a_client import connected as over_grpc
from tests.support.a2a_client import request, response_of, send
from tests.support.seeded_secrets import seed_text
from tests.support.servers.processes import ROOT, run_everloop

WITHOUT_MODEL = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "EVERLOOP_MODEL": ""}
UP = "Everloop is up."
TIMEOUT = 200.0
ROW = re.compile(r"^  (?P<name>\w[\w ]*?)  +(?P<value>\S+)", re.MULTILINE)


class Run:
    """One run of a module, its output, and all its processes so far."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log
        self.family = {psutil.Process(process.pid)}

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def addresses(self) -> dict[str, str]:
        return {row["name"]: row["value"] for row in ROW.finditer(self.output.split(UP)[1])}

    async def says(self, text: str) -> None:
        """Wait until the output has this text."""
        await until(lambda: text in self.output or self.process.returncode is not None)
        assert text in self.output, self.output
        self.family |= set(psutil.Process(self.process.pid).children(recursive=True))

    async def end(self, how: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(how)
        return await self.process.wait()

    @property
    def is_gone(self) -> bool:
        return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in self.family)


@asynccontextmanager
async def running(
    directory: Path, *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> AsyncGenerator[Run]:
    log = directory.with_name(f"{directory.name}-output-{os.urandom(4).hex()}")
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everloop", *arguments, "--directory", str(directory)),
            env={**os.environ, "PYTHONPATH": str(ROOT), **WITHOUT_MODEL, **(environment or {})},
            cwd=cwd,
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
        )
    try:
        yield Run(process, log)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def stack(directory: Path, environment: Mapping[str, str] | None = None) -> AsyncGenerator[Run]:
    async with running(directory, "up", environment=environment) as run:
        await run.says("  Logs ")
        yield run


async def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact, with a timeout for a busy machine."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            if fact():
                return
            await asyncio.sleep(0.05)


async def completed(url: str, task_id: str) -> Result:
    """Read the task until it is completed, with a timeout for a busy machine."""
    async with asyncio.timeout(TIMEOUT), Client(url) as client:
        while True:
            task = await client.task(task_id)
            if task.state is TaskState.COMPLETED:
                return task
            await asyncio.sleep(0.2)


async def start_counting(url: str) -> str:
    """Start a task that writes for some seconds, leave it in the middle of its answer, return its id."""
    async with Client(url) as client, aclosing(client.stream(seed_text("Count to 300"))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                return event.task_id
    raise AssertionError("the task wrote nothing")


@dataclass(frozen=True)
class Restarted:
    """A stack that was killed in the middle of an answer, and runs again."""

    directory: Path
    environment: Mapping[str, str]
    killed: Run
    code: int
    task_id: str
    again: Run


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def restarted(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Restarted]:
    """One for read-only tests; SIGTERM then ends it in order."""
    directory = tmp_path_factory.mktemp("stack") / "state"
    environment = {"EVERLOOP_PORT": str(free_port()), "EVERLOOP_GRPC_PORT": str(free_port())}
    async with stack(directory, environment) as first:
        task_id = await start_counting(first.addresses["A2A gateway"])
        code = await first.end(signal.SIGKILL)
        await until(lambda: first.is_gone)
    async with stack(directory, environment) as second:
        yield Restarted(directory, environment, first, code, task_id, second)
        assert await second.end(signal.SIGTERM) == 0
    assert second.is_gone


ONLY_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux kills the children of a killed process"
)


@ONLY_LINUX
async def test_a_killed_stack_leaves_no_process_and_its_task_goes_on_at_the_next_start(
    restarted: Restarted,
) -> None:
    """SIGKILL in the middle of an answer; the next start has the same addresses and the whole answer."""
    again = restarted.again
    task = await completed(again.addresses["A2A gateway"], restarted.task_id)

    assert restarted.code == -signal.SIGKILL
    assert len(restarted.killed.family) == 6
    assert restarted.killed.is_gone
    assert again.addresses == restarted.killed.addresses
    assert task.text.endswith(" 299 300")


@ONLY_LINUX
async def test_the_printed_addresses_answer_and_the_directory_is_taken(
    restarted: Restarted, tmp_path: Path
) -> None:
    """Card, gRPC and UI are where the table says; a second stack and a taken port get one line each."""
    run, variables = restarted.again, restarted.environment
    port, grpc_port = variables["EVERLOOP_PORT"], variables["EVERLOOP_GRPC_PORT"]
    async with httpx.AsyncClient(trust_env=False) as client:
        card = await client.get(run.addresses["Agent card"])
        catalogue = await client.get(run.addresses["All agents"])
        ui = await client.get(run.addresses["Temporal UI"])
    async with over_grpc(run.addresses["A2A gateway"], binding="GRPC", streaming=False) as caller:
        answered = await send(caller, request("Hello"))
    code, second = await run_everloop(WITHOUT_MODEL, "up", "--directory", str(restarted.directory))
    taken = {**WITHOUT_MODEL, "EVERLOOP_PORT": port}
    other_code, third = await run_everloop(taken, "up", "--directory", str(tmp_path / "other"))

    assert run.addresses["A2A gateway"] == f"http://127.0.0.1:{port}"
    assert (card.status_code, ui.status_code, code, other_code) == (200, 200, 1, 1)
    assert [entry["card"] for entry in catalogue.json()] == [run.addresses["Agent card"]]
    assert run.addresses["gRPC"] == f"127.0.0.1:{grpc_port}"
    assert run.addresses["gRPC"] in card.text
    assert answered.status.state == TASK_STATE_COMPLETED
    assert SCRIPTED in response_of(answered)
    assert re.fullmatch(
        rf"everloop: a stack runs in {restarted.directory} already \(process {run.process.pid}\).*\n", second
    )
    assert re.fullmatch(rf"everloop: port {port} \(EVERLOOP_PORT\) is in use.*\n", third)


START = '{"workflowType": {"name": "AgentTask"}, "taskQueue": {"name": "everloop"}, "requestId": "x"}'
REBOUND = "pages.example"
"""The name of a page that has rebound it to this machine, so that its calls are of its own origin."""


def _listening(run: Run) -> set[tuple[str, int]]:
    """Return the addresses of a stack's processes."""
    connections = [each for process in run.family for each in process.net_connections("tcp")]
    return {(each.laddr.ip, each.laddr.port) for each in connections if each.status == psutil.CONN_LISTEN}


@ONLY_LINUX
async def test_no_page_of_another_site_reads_or_changes_anything(restarted: Restarted) -> None:
    """Not by a form, which may be sent to all ports of this machine, nor under a rebound name."""
    ui, workflow = restarted.again.addresses["Temporal UI"], "api/v1/namespaces/default/workflows"
    listening = _listening(restarted.again)
    # As browsers do: no connection is used for two names.
    alone = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=20, limits=alone) as client:
        for _, port in {place for place in listening if place[0] == LOOPBACK}:
            for host in (REBOUND, f"{LOOPBACK}:{port}", f"localhost:{port}"):
                url, form = f"http://{LOOPBACK}:{port}", {"Host": host, "Content-Type": "text/plain"}
                with suppress(httpx.HTTPError):  # of servers that do not speak HTTP
                    sent = await client.post(f"{url}/{workflow}/theirs", content=START, headers=form)
                    assert not sent.is_success, (port, host)
            for path in ("", workflow):
                with suppress(httpx.HTTPError):
                    read = await client.get(f"{url}/{path}", headers={"Host": REBOUND})
                    assert not read.is_success, (port, path)
        shown = await client.get(f"{ui}/{workflow}", headers={"Host": ui.removeprefix("http://")})
        task = await client.get(f"{ui}/{workflow}/theirs")
    assert (shown.status_code, task.status_code) == (200, 404)


@ONLY_LINUX
async def test_other_users_of_this_machine_do_not_get_into_valkey(restarted: Restarted) -> None:
    """It requires a password, which is in a file of its user's and in no list of processes."""
    url = (restarted.directory / "redis-url").read_text()
    password, address = urlsplit(url).password, restarted.again.addresses["Redis"]
    async with Redis.from_url(address) as stranger, Redis.from_url(url) as known:
        assert await known.dbsize() > 0
        with pytest.raises(AuthenticationError):
            await stranger.dbsize()
    assert urlsplit(address).password is None
    assert stat.S_IMODE(restarted.directory.stat().st_mode) == 0o700
    commands = [" ".join(process.cmdline()) for process in restarted.again.family]
    assert password
    assert not [command for command in commands if password in command]


BROKEN = """
from everloop import Agent

agent = Agent(id="clock", name="Clock", description="Tells the time.", plugins=[watch])
"""


async def _schedule(project: Path, agent: str) -> Ran:
    """Make a schedule in a directory with running agents, without settings in the environment."""
    words = ("--id", "noon", "--agent", agent, "--text", "Tell the time.", "--every", "1h")
    return await Shell(project).run("schedules", "add", *words)


async def test_whoever_asks_while_no_agent_can_be_loaded_is_told_why(tmp_path: Path) -> None:
    """File, line and source are at the printed address, which serves once the file is fixed.

    Then commands in that directory find its agents.
    """
    project, url = tmp_path / "clock", f"http://127.0.0.1:{(port := free_port())}"
    project.mkdir()
    (project / "agent.py").write_text(BROKEN)
    environment = {"EVERLOOP_PORT": str(port)}
    async with (
        running(project / ".everloop", "dev", environment=environment, cwd=project) as run,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        await run.says("it is tried again when you save")
        told = await client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage"})
        shown = await client.get(f"{url}/console", headers={"Accept": "text/html"})
        rebound = await client.get(url, headers={"Host": REBOUND})
        (project / "agent.py").write_text(BROKEN.replace("watch", ""))
        await run.says("serves clock")
        card = await client.get(f"{url}/.well-known/agent-card.json")
        added, wrong = await _schedule(project, "clock"), await _schedule(project, "demo")
        assert await run.end(signal.SIGINT) == 0

    assert (added.code, added.out.splitlines()[0]) == (0, "added noon: agent clock, every 1h")
    assert (wrong.code, wrong.err) == (1, "everloop: no agent 'demo' here; this process serves: clock\n")
    assert (told.status_code, told.headers["retry-after"]) == (503, "1")
    message = told.json()["error"]["message"]
    assert "agent.py:4: NameError: name 'watch' is not defined" in message
    assert '>    4 │ agent = Agent(id="clock"' in message
    assert (shown.status_code, shown.text, shown.headers["refresh"]) == (503, message, "1")
    assert (rebound.status_code, "agent.py" in rebound.text) == (421, False)
    assert (card.status_code, card.json()["name"]) == (200, "Clock")
    assert run.is_gone


async def test_the_demo_proves_that_every_tool_ran_exactly_once(tmp_path: Path) -> None:
    """The worker is killed while the model writes; two workers share the calls, and every count is 11."""
    async with running(tmp_path / "demo", "demo") as run:
        await run.says("SIGKILL to the worker")
        code = await run.process.wait()

    assert code == 0, run.output
    assert "The task finished, and every tool ran exactly once" in run.output
    assert re.search(r"together +11 +11 +11 +11 +5\n", run.output)
    assert re.search(r"Tool calls by process: 5 by \S+, 6 by \S+\n", run.output)
    assert re.search(r"asked for again after the kill: 1\n", run.output)
    assert len(re.findall(r"http://[\d.:]+/namespaces/default/workflows/\S+", run.output)) == 2
    assert run.is_gone


async def test_ctrl_c_before_it_is_up_stops_what_has_started(tmp_path: Path) -> None:
    """The exit code is that of an interrupted program, and the last line says that nothing is left."""
    async with running(tmp_path / "state", "up") as run:
        await run.says("temporal is ready")
        code = await run.end(signal.SIGINT)

    assert code == 130
    assert run.output.splitlines()[-1] == (
        "everloop: interrupted before it was up; all that had started is stopped"
    )
    assert run.is_gone
