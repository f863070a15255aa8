"""Pages of the console: one for each of its addresses, with safe headers."""

import gzip
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from everloop.gateway.console.console_routes import console_routes


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "console-A1.js").write_text("run()", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    script = '<script src="{{root}}console/assets/console-A1.js">'
    (tmp_path / "index.html").write_text(script, encoding="utf-8")
    (tmp_path / "frame.html").write_text("<script>show()</script>", encoding="utf-8")
    return tmp_path


def client_of(dist: Path, url: str = "http://localhost:8080/") -> httpx.AsyncClient:
    app = Starlette(routes=console_routes(url, dist))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/tasks/demo/t%2F1"])
async def test_each_address_is_the_page(dist: Path, path: str) -> None:
    """The browser routes the address; only the console's scripts run, and no page can frame it."""
    async with client_of(dist) as client:
        page = await client.get(path)

    assert (page.status_code, page.headers["cache-control"]) == (200, "no-cache")
    assert '"/console/assets/console-A1.js"' in page.text
    policy = page.headers["content-security-policy"]
    for rule in ("script-src 'self';", "frame-ancestors 'none'", "require-trusted-types-for 'script'"):
        assert rule in policy
    assert "unsafe" not in policy


async def test_assets_are_kept_for_ever_and_nothing_else_is_served(dist: Path) -> None:
    """Their names change with their content."""
    async with client_of(dist) as client:
        asset = await client.get("/console/assets/console-A1.js")
        names = ("none.js", "..%2Fsecret.txt", "%2Fetc%2Fpasswd")
        others = [await client.get(f"/console/assets/{name}") for name in names]

    assert (asset.text, asset.headers["cache-control"]) == ("run()", "public, max-age=31536000, immutable")
    assert asset.headers["content-type"].startswith("text/javascript")
    assert "secret" not in "".join(other.text for other in others)
    assert others[0].status_code == 404


async def test_assets_are_served_compressed_to_who_takes_them_so(dist: Path) -> None:
    """The build has compressed them; other clients get the plain files, and caches separate the two."""
    packed = gzip.compress(b"run()")
    (dist / "assets" / "console-A1.js.gz").write_bytes(packed)
    async with client_of(dist) as client:
        small = await client.get("/console/assets/console-A1.js")
        plain = await client.get("/console/assets/console-A1.js", headers={"Accept-Encoding": "identity"})

    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["content-length"] == str(len(packed))
    assert small.headers["content-type"].startswith("text/javascript")
    assert "content-encoding" not in plain.headers
    assert [each.text for each in (small, plain)] == ["run()", "run()"]
    assert [each.headers["vary"] for each in (small, plain)] == ["Accept-Encoding", "Accept-Encoding"]


async def test_a_gateway_below_a_path_says_so_to_the_page(dist: Path) -> None:
    """A proxy in front of it maps it to a path."""
    async with client_of(dist, "https://example.org/agents/") as client:
        assert '"/agents/console/assets/console-A1.js"' in (await client.get("/console")).text


async def test_what_was_not_built_is_said(tmp_path: Path) -> None:
    """The page says how to build it."""
    async with client_of(tmp_path) as client:
        page = await client.get("/console")

    assert "make console" in page.text


async def test_pages_of_agents_stand_in_a_sandbox(dist: Path) -> None:
    """The frame has an origin of its own, the console alone may hold it, and one script runs in it."""
    async with client_of(dist) as client:
        frame = await client.get("/console/frame")

    policy = frame.headers["content-security-policy"].split("; ")
    digest = b64encode(sha256(b"show()").digest()).decode()
    assert frame.text == "<script>show()</script>"
    assert {"sandbox allow-scripts", "default-src 'none'", "frame-ancestors 'self'"} <= {*policy}
    assert f"script-src 'sha256-{digest}'" in policy
    assert frame.headers["x-content-type-options"] == "nosniff"
