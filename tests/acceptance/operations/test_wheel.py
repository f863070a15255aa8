"""The contents of sdist and wheel, and the wheel beside modules with the names of Everloop's folders."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everloop.gateway.console.build import NEEDS_NPM, build
from everloop.version import __version__
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.servers.processes import ROOT

TIMEOUT = 200.0
NOT_OF_THE_PACKAGE = (".*", "__pycache__", "build", "*.egg-info", "bench", "docs", "tests", "node_modules")
DATA = {".lua", ".pyi", ".toml", ".typed"}

NOT_PACKED = {"ruff.toml"}

WHEEL = ("--no-deps", "--no-build-isolation", "--wheel-dir")

NO_NPM = {"NPM_CONFIG_REGISTRY": "http://127.0.0.1:1", "NPM_CONFIG_FETCH_RETRIES": "0"}
"""An index of npm that does not answer."""

THEIRS = """
import sys

importer = sys._getframe(1)
while "importlib" in importer.f_code.co_filename:
    importer = importer.f_back
if importer.f_globals["__spec__"] and importer.f_globals["__spec__"].name.startswith("everloop"):
    raise ImportError(f"Everloop imported {__file__}")
WHOSE = "theirs"
"""

AGENT = """
import activities, agents, deploy, stores, workflows
from everloop import Agent, Turn
from everloop.workflows.contract.messages import AssistantMessage

async def respond(turn: Turn) -> AssistantMessage:
    whose = {module.WHOSE for module in (activities, agents, deploy, stores, workflows)}
    return AssistantMessage(text=", ".join(whose))

agent = Agent(id="owner", name="Owner", description="Says whose modules it sees.", respond=respond)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the clone with its console built, and with a module that an earlier build has left there."""
    build()
    copy = tmp_path_factory.mktemp("wheel") / "source"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_OF_THE_PACKAGE))
    stale = copy / "build/lib/everloop/removed.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return _built_wheel(source, source.parent)


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    done = _build_sdist(source)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = source.parent.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """Install the wheel into an environment that sees what Everloop needs; return its folder of programs."""
    environment = wheel.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    bin_ = environment / "bin"
    done = _pip("--python", str(bin_ / "python"), "install", "--no-deps", str(wheel))
    assert done.returncode == 0, done.stdout + done.stderr
    scheme = {"base": str(environment), "platbase": str(environment)}
    installed = Path(sysconfig.get_path("purelib", vars=scheme))
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (bin_ / "temporal").symlink_to(Path(sys.executable).with_name("temporal"))  # which a package installs
    return bin_


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of a user's, with modules and packages of the names that ours have."""
    folder = tmp_path / "project"
    for module in (
        "activities.py",
        "workflows.py",
        *(f"{p}/__init__.py" for p in ("agents", "deploy", "stores")),
    ):
        file = folder / module
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(THEIRS, encoding="utf-8")
    (folder / "agents" / "owner.py").write_text(AGENT, encoding="utf-8")
    (folder / "owners.py").write_text("from agents.owner import agent", encoding="utf-8")
    return folder


def test_the_wheel_has_all_modules_and_data(wheel: Path) -> None:
    """Each file of the folders that is code, or that code reads, and no other top-level package."""
    folders = [path for path in (ROOT / "everloop").iterdir() if path.name != "__pycache__"]
    files = [file for path in folders for file in (path.resolve().rglob("*") if path.is_dir() else [path])]
    files = [file for file in files if file.is_file() and _is_packed(file)]
    product = {file.name for file in files}
    names = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    packed = {name for name in names if name.parts[0] == "everloop"}

    assert {name.parts[0] for name in names} == {"everloop", f"everloop-{__version__}.dist-info"}
    assert {name.name for name in packed} == product
    assert len(packed) == len(files)


def test_the_sdist_makes_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    """Without the index of npm. The sdist carries the built console and its sources, not their libraries."""
    again = _built_wheel(sdist, tmp_path, **NO_NPM)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    console = "everloop/gateway/console"

    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
    assert {f"{console}/dist/index.html", f"{console}/web/package-lock.json", "LICENSE"} <= names
    assert not {name for name in names if "node_modules" in name or name.startswith(("tests/", "docs/"))}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_nothing_is_built_without_the_console(kind: str, source: Path, tmp_path: Path) -> None:
    """Where it is not built and npm's index cannot be reached, the build ends with what to do."""
    copy = tmp_path / "source"
    shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("dist"))
    done = (
        _pip("wheel", *WHEEL, str(tmp_path), str(copy), **NO_NPM)
        if kind == "wheel"
        else _build_sdist(copy, **NO_NPM)
    )
    said = " ".join((done.stdout + done.stderr).split())

    assert done.returncode
    assert "error: npm ci" in said
    assert "ECONNREFUSED" in said
    assert NEEDS_NPM in said
    assert "Traceback" not in said
    assert not [*tmp_path.glob("*.whl"), *tmp_path.glob("*.tar.gz")]


def _is_packed(file: Path) -> bool:
    if "/console/dist/" in file.as_posix():
        return True
    is_code = file.suffix in {".py", *DATA} and file.name not in NOT_PACKED
    return is_code and "node_modules" not in file.parts


def test_the_command_works_outside_the_clone(programs: Path, project: Path) -> None:
    """Its help, its version, and agents of the working directory, also by the name of a module."""
    assert _run(project, programs / "everloop", "--version").stdout == f"everloop {__version__}\n"
    assert "gateway" in _run(project, programs / "everloop", "--help").stdout
    for process in ("worker", "gateway"):
        done = _run(project, programs / "everloop", process, EVERLOOP_AGENTS="owners:nobody")
        said = f"{process}: EVERLOOP_AGENTS: cannot load 'owners:nobody': owners.py has no 'nobody'; "
        assert (done.returncode, done.stderr) == (1, f"{said}expected module:attribute\n")


async def test_it_serves_an_agent_of_another_folder(programs: Path, project: Path) -> None:
    """Worker and gateway see its modules; nothing of ours imports them."""
    async with (
        _everloop_up(programs, project, EVERLOOP_AGENTS="agents/owner.py") as url,
        connected(url, streaming=False) as client,
    ):
        task = await send(client, request("Whose are they?"))

    assert response_of(task) == "theirs"


def test_a_new_project_passes_its_own_test(programs: Path, tmp_path: Path) -> None:
    """With pytest as it comes, on the servers that packages bring, without a model and a key."""
    made = _run(tmp_path, programs / "everloop", "new", "weather")
    project = tmp_path / "weather"

    done = _run(project, programs / "python", "-m", "pytest", "--color=no", "-p", "no:cacheprovider")

    assert made.stdout.endswith("  everloop dev\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@asynccontextmanager
async def _everloop_up(programs: Path, project: Path, **variables: str) -> AsyncGenerator[str]:
    """Run `everloop up`, and yield the gateway's address."""
    log = project.with_name("up.log")
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(programs / "everloop", "up", "--json", "--directory", project.with_name("state")),
            cwd=project,
            env=_environment(variables),
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout
    try:
        async with asyncio.timeout(TIMEOUT):
            addresses = json.loads(await process.stdout.readuntil(b"\n}\n"))
        yield addresses["gateway"]
    except asyncio.IncompleteReadError:
        raise AssertionError(log.read_text(errors="replace")) from None
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _run(directory: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env=_environment(variables), capture_output=True, text=True, check=False
    )


def _environment(variables: dict[str, str]) -> dict[str, str]:
    """Return what a shell of the user's has: nothing that leads to the clone, its servers or a model."""
    ours = ("EVERLOOP_", "OPENAI_", "PYTEST_", "PYTHONPATH", "TEMPORAL_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **variables}


def _built_wheel(source: Path, directory: Path, **variables: str) -> Path:
    done = _pip("wheel", *WHEEL, str(directory), str(source), **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = directory.glob("*.whl")
    return built


def _build_sdist(source: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    return _run(source, sys.executable, "-c", program, source.parent, **variables)


def _pip(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir")
    return _run(ROOT, sys.executable, "-m", "pip", *quiet, *arguments, **variables)
