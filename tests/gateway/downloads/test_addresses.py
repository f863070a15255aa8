"""Addresses and metadata of artifacts, permissions, and links to the store itself."""

import re
from pathlib import Path

import pytest
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.context import ANONYMOUS
from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.log.log_store import TaskViews
from tests.gateway.downloads.site import (
    CONTENT,
    LINK_SECONDS,
    ROWS,
    FailingArtifacts,
    Site,
    check_error,
    file,
)
from tests.gateway.harness import key_scheme, running_gateway, unique


async def test_a_link_to_the_store_takes_the_place_of_the_content(client: Client, views: TaskViews) -> None:
    """Where it is switched on and the store gives one: 307, not to be kept; conditions go first.

    It serves what the gateway serves, under the same name. A client repeats its conditions where it is sent,
    and there are other tags.
    """
    artifacts = FailingArtifacts(views)
    artifacts.url = "https://store.example/x?signature=1"
    async with running_gateway(
        client, views, queue="none", artifacts=artifacts, link_seconds=LINK_SECONDS
    ) as gateway:
        site = Site(gateway, artifacts, unique("links"))
        await site.put(file())
        await site.put(NewPart(kind="rows", content=ROWS), artifact_id="rows")
        await site.put(file(), artifact_id="building", complete=False)
        answer = await site.get(Range="bytes=0-1")
        head = await site.head()
        known = await site.get(If_None_Match=head.headers["ETag"])
        tag = head.headers["ETag"]
        same = await site.get(If_Match=tag)
        resumed = await site.get(If_Range=tag, Range="bytes=0-1")
        csv = await site.get(site.address("rows") + "?format=csv")
        building = await site.get(site.address("building"))
        artifacts.url = None
        small = await site.get()
    assert (answer.status_code, answer.headers["Location"]) == (307, "https://store.example/x?signature=1")
    assert answer.headers["Cache-Control"] == "no-store"
    assert (head.status_code, head.headers["Content-Length"]) == (200, "2048")
    assert artifacts.terms == LinkTerms(
        head.headers["Content-Type"], head.headers["Content-Disposition"], LINK_SECONDS
    )
    assert [a.status_code for a in (known, csv, building, small)] == [304, 200, 200, 200]
    assert (same.status_code, resumed.status_code, resumed.content) == (200, 206, CONTENT[:2])


async def test_without_the_setting_nobody_gets_a_link(site: Site) -> None:
    """A link shows the address of the store, and works without authentication."""
    site.artifacts.url = "https://store.example/x"
    await site.put(file())
    assert (await site.get()).content == CONTENT


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{}/out/parts/1", "no part 1 of artifact 'out' here"),
        ("{}/out/parts/x", "no part x of artifact 'out' here"),
        ("{}/out/parts/-1", "no part -1 of artifact 'out' here"),
        ("{}/out/parts/99999999999999", "no part 99999999999999"),
        ("{}/o%00ut/parts/0", "of artifact 'o\\x00ut' here"),
        ("{}/%FF/parts/0", "here"),
        ("{}/out/parts", "nothing is at"),
        ("{}/out/parts/0/", "nothing is at"),
        ("{}/out/pieces/0", "nothing is at"),
        ("{}/nothing", "no artifact 'nothing' here"),
        ("artifacts", "nothing is at"),
        ("artifacts/", "nothing is at"),
        ("artifacts?taskId=t", "nothing is at"),
        ("artifacts//out", "nothing is at"),
        ("artifacts//out/parts/0", "nothing is at"),
    ],
)
async def test_an_address_that_leads_nowhere_is_not_found(site: Site, path: str, words: str) -> None:
    """404 in JSON that repeats the requested address."""
    await site.put(file())
    answer = await site.gateway.http.get(path.format(site.path))
    check_error(answer, 404, words)


async def test_what_is_known_of_an_artifact_is_json(site: Site) -> None:
    """Its parts with the addresses of their content, and its log; no keys of the store."""
    rows = NewPart(kind="rows", content=ROWS, row_schema={"type": "object"})
    await site.put(file(filename="p.png"), rows)
    answer = await site.gateway.http.get(f"{site.path}/out")
    known = answer.json()
    assert (known["artifactId"], known["contextId"], known["taskId"]) == ("out", site.context, "task")
    assert (known["status"], known["version"], known["isInput"]) == ("complete", 1, False)
    assert [operation["kind"] for operation in known["operations"]] == ["create", "complete"]
    times = [known["createdAt"], known["completedAt"], *(each["at"] for each in known["operations"])]
    assert all(re.fullmatch(r"[-\d]{10}T[:\d]{8}\.\d{3}Z", each) for each in times)  # as all of the extension
    assert known["parts"] == [
        {
            "index": 0,
            "kind": "file",
            "mediaType": "image/png",
            "filename": "p.png",
            "size": 2048,
            "url": f"{site.gateway.url}{site.address()}",
        },
        {
            "index": 1,
            "kind": "rows",
            "mediaType": "",
            "filename": "",
            "size": len(ROWS),
            "rows": 2,
            "rowSchema": {"type": "object"},
            "url": f"{site.gateway.url}{site.address(index=1)}",
        },
    ]
    assert ANONYMOUS not in answer.text
    assert (await site.gateway.http.get(known["parts"][0]["url"])).content == CONTENT
    assert (await site.gateway.http.get(known["url"])).json() == known


async def test_the_artifacts_of_a_context_are_listed(site: Site) -> None:
    """Oldest first, of one task if it is named; each with its metadata, without its log."""
    for name in ("one", "two"):
        change = Create(task_id=f"task of {name}", parts=(file(),), complete=True)
        await site.artifacts.apply(site.key, name, change)
    path = f"{site.path}"
    every = (await site.gateway.http.get(path)).json()["artifacts"]
    of_two = (await site.gateway.http.get(path, params={"taskId": "task of two"})).json()["artifacts"]
    assert [each["artifactId"] for each in every] == ["one", "two"]
    assert of_two == every[1:]
    assert "operations" not in every[0]


async def test_an_administrator_downloads_what_belongs_to_others(
    client: Client, views: TaskViews, tmp_path: Path
) -> None:
    """With `?owner=`, as in all of the extension; other callers and requests without it get 404."""
    scheme, keys = key_scheme(
        tmp_path / "keys", {"ann": ("ann", ["tasks:read"]), "root": ("root", ["tasks:read", "admin"])}
    )
    artifacts = FailingArtifacts(views)
    async with running_gateway(
        client, views, queue="none", artifacts=artifacts, access=AccessControl(scheme)
    ) as gateway:
        site = Site(gateway, artifacts, unique("others"))
        await site.put(file(), owner="bob")
        asked = f"{site.address()}?owner=bob"
        got = await site.get(asked, **keys["root"])
        refused = await site.get(asked, **keys["ann"])
        missing = await site.get(**keys["root"])
    assert (got.status_code, got.content) == (200, CONTENT)
    check_error(refused, 403, "admin")
    check_error(missing, 404, "no part 0 of artifact 'out' here")
