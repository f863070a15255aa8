"""The codec endpoint: operators alone read encrypted workflows in Temporal's CLI and UI."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.schemes import Authenticator, ProxyCertificateScheme
from everloop.runtime.temporal.blob_payloads import THRESHOLD, data_converter
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from tests.gateway.harness import Named, RunningGateway, key_scheme, running_gateway
from tests.support.encryption import keyring
from tests.support.secret_search import contains
from tests.support.stores import redis_of

UI = "https://temporal.example:8233"
WORD = "a word for operators"


@dataclass(frozen=True)
class Harness:
    """A gateway that decrypts, a codec that encrypts for it, and a key for each kind of caller."""

    gateway: RunningGateway
    client: Client
    keys: Mapping[str, Mapping[str, str]]

    async def ask(self, what: str, body: object, caller: str = "operator", **headers: str) -> httpx.Response:
        """Send JSON; `_` in names of headers stands for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent.update(self.keys[caller])
        return await self.gateway.http.post(f"/codec/{what}", json=body, headers=sent)

    async def encrypted(self, *values: object) -> dict[str, Any]:
        """Return values as Temporal stores them, as JSON."""
        return as_json(await self.client.data_converter.encode(values))


def as_json(payloads: list[Payload]) -> dict[str, Any]:
    return MessageToDict(Payloads(payloads=payloads))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def harness(
    temporal_address: str, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Harness]:
    callers = {"operator": ("alice", ["operator"]), "user": ("alice", ["tasks:read", "tasks:write"])}
    scheme, keys = key_scheme(tmp_path_factory.mktemp("keys") / "keys", callers)
    converter = data_converter(RedisBlobs(redis_of(views)), cipher=keyring("k1"))
    client = await Client.connect(temporal_address, data_converter=converter)
    async with running_gateway(
        client,
        views,
        queue="none",
        access=AccessControl(scheme),
        codec_origins=UI,
        max_message_bytes=1_000_000,
        max_body_bytes=1_200_000,
    ) as gateway:
        yield Harness(gateway, client, {"nobody": {}, **keys})


async def test_decodes_what_is_encrypted_what_is_in_blobs_and_what_is_plain(harness: Harness) -> None:
    """In the order they came, each payload as the worker's own converter has it."""
    large = "x" * THRESHOLD
    body = await harness.encrypted(WORD, large)
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"as it is"')
    body["payloads"] += as_json([plain])["payloads"]
    answer = await harness.ask("decode", body, X_Namespace="default")
    data = [json.loads(base64.b64decode(each["data"])) for each in answer.json()["payloads"]]
    assert data == [WORD, large, "as it is"]
    assert base64.b64decode(answer.json()["payloads"][0]["metadata"]["encoding"]) == b"json/plain"
    assert answer.headers["cache-control"] == "no-store"
    assert WORD.encode() not in base64.b64decode(body["payloads"][0]["data"])


async def test_encodes_what_an_operator_sends(harness: Harness) -> None:
    """A worker reads it, and Temporal does not."""
    plain = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(WORD).encode())
    answer = (await harness.ask("encode", as_json([plain]))).json()["payloads"]
    encoded = [
        Payload(
            metadata={name: base64.b64decode(value) for name, value in each["metadata"].items()},
            data=base64.b64decode(each["data"]),
        )
        for each in answer
    ]
    assert encoded[0].metadata["encoding"] == b"binary/encrypted"
    assert await harness.client.data_converter.decode(encoded, [str]) == [WORD]


@pytest.mark.parametrize(("caller", "status"), [("nobody", 401), ("user", 403)])
@pytest.mark.parametrize("what", ["decode", "encode"])
async def test_only_operators_may(harness: Harness, what: str, caller: str, status: int) -> None:
    """A caller with all scopes for its own tasks cannot read those of others here."""
    answer = await harness.ask(what, await harness.encrypted(WORD), caller)
    assert answer.status_code == status
    assert "payloads" not in answer.json()
    assert ("www-authenticate" in answer.headers) == (status == 401)
    assert status == 401 or "takes the scope operator" in answer.json()["message"]


async def test_callers_of_whom_no_scopes_are_known_are_no_operators(
    harness: Harness, views: TaskViews
) -> None:
    """Without scopes other addresses accept all callers; this one requires its scope by name."""
    async with running_gateway(harness.client, views, queue="none", access=AccessControl(Named())) as gateway:
        answer = await gateway.http.post("/codec/decode", json=await harness.encrypted(WORD))
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ([], 400, "expected payloads as JSON"),
        ({"payloads": [{"data": 7}]}, 400, "expected payloads as JSON"),
        ({"payload": []}, 400, "expected payloads as JSON"),
        ({"payloads": [{"data": "A" * 1_200_000}]}, 413, "1200000"),
    ],
    ids=["no object", "wrong type", "unknown field", "too large"],
)
async def test_bad_bodies_are_told(harness: Harness, body: object, status: int, said: str) -> None:
    """A status of 4xx and one line about the expected form."""
    answer = await harness.ask("decode", body)
    assert (answer.status_code, said in answer.json()["message"]) == (status, True), answer.text


async def test_an_unknown_key_is_named(harness: Harness) -> None:
    """A payload that cannot be decrypted is the caller's error: 422 with the id of the key."""
    other = data_converter(None, cipher=keyring("k9"))
    answer = await harness.ask("decode", as_json(await other.encode([WORD])))
    assert answer.status_code == 422
    assert "'k9', which is not known here" in answer.json()["message"]


@pytest.mark.parametrize(("origin", "allowed"), [(UI, UI), ("https://evil.example", None)])
async def test_pages_of_the_ui_alone_may_ask(harness: Harness, origin: str, allowed: str | None) -> None:
    """The origins of EVERLOOP_CODEC_ORIGINS pass the preflight and read the answer."""
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    before = await harness.gateway.http.options("/codec/decode", headers=asked)
    answer = await harness.ask("decode", await harness.encrypted(WORD), Origin=origin)
    assert (before.is_success, answer.is_success) == (allowed is not None, True)
    for each in (before, answer):
        assert each.headers.get("access-control-allow-origin") == allowed
        assert "Origin" in each.headers["vary"]
    assert "X-Namespace" in before.headers["access-control-allow-headers"]


async def test_is_not_there_where_nothing_is_encrypted_or_anybody_gets_in(
    harness: Harness, client: Client, views: TaskViews
) -> None:
    """Without keys or without authentication the endpoint does not exist."""
    access = AccessControl(Authenticator([ProxyCertificateScheme("X-Name", [])]))
    for temporal, control in ((client, access), (harness.client, AccessControl())):
        async with running_gateway(temporal, views, queue="none", access=control) as gateway:
            assert (await gateway.http.post("/codec/decode", json={})).status_code == 404


async def test_the_temporal_cli_reads_by_it(harness: Harness, temporal_address: str) -> None:
    """`temporal workflow show` with --codec-endpoint shows what a workflow was started with."""
    workflow_id = str(uuid4())
    await harness.client.start_workflow("Nothing", WORD, id=workflow_id, task_queue="none")

    async def shown(*more: str) -> bytes:
        command = [str(Path(sys.executable).with_name("temporal")), "workflow", "show", "--output", "json"]
        command += ["--address", temporal_address, "--workflow-id", workflow_id, *more]
        showing = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await showing.communicate()
        return output

    header = f"X-API-Key={harness.keys['operator']['X-API-Key']}"
    endpoint = f"{harness.gateway.url}codec"
    assert not contains(await shown(), WORD)
    assert contains(await shown("--codec-endpoint", endpoint, "--codec-header", header), WORD)
