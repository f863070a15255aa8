"""`everloop doctor` finds wrong clocks, and blob stores that cannot be written."""

import json
import os
import re
import shutil
import stat
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from everloop.local.servers import LOOPBACK
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.stores.blobs.blob_settings import BlobSettings, opened_blobs
from tests.acceptance.cli.terminal import COMMAND, Shell
from tests.support.rigs.deployment import Service
from tests.support.servers.buckets import new_bucket, running_moto
from tests.support.servers.processes import running_valkey
from tests.support.servers.relay import Relay, running_relay
from tests.support.servers.s3_relay import running_s3_relay

DENIED = "this process may not read and write there; give the directory to its user"

Findings = dict[str, list[tuple[str, str]]]


async def findings(shell: Shell, command: Sequence[str] = COMMAND) -> tuple[int, Findings]:
    """Return the exit code of a doctor, and its text for each check."""
    ran = await shell.run("doctor", "--json", command=command)
    found: Findings = {}
    for each in json.loads(ran.out)["findings"]:
        found.setdefault(each["check"], []).append((each["state"], each["says"]))
    return ran.code, found


def redis_time(apart: timedelta) -> Callable[[bytes], bytes]:
    """Return a way to move the clock of Redis."""
    return lambda piece: re.sub(
        rb"(?<=^\*2\r\n\$10\r\n)\d{10}",
        lambda found: b"%d" % (int(found[0]) + apart.total_seconds()),
        piece,
    )


def http_date(apart: timedelta) -> Callable[[bytes], bytes]:
    """Return a way to move the clock of a gateway."""
    return lambda piece: re.sub(
        rb"(?<=\ndate: )[^\r]+",
        lambda found: format_datetime(parsedate_to_datetime(found[0].decode()) + apart, usegmt=True).encode(),
        piece,
    )


@pytest.mark.parametrize(("seconds", "which"), [(-90, "ahead of"), (3600, "behind")])
async def test_a_doctor_finds_clocks_that_are_wrong(
    service: Service, tmp_path: Path, seconds: int, which: str
) -> None:
    """The clocks of Redis and of a gateway, each by name, with the remedy."""
    off = timedelta(seconds=seconds)
    redis, gateway = urlsplit(service.everloop.redis_url).port or 0, urlsplit(service.gateway.url).port or 0
    async with (
        running_relay(Relay(redis, redis_time(off))) as to_redis,
        running_relay(Relay(gateway, http_date(off))) as to_gateway,
    ):
        variables = {**service.everloop.environment, "EVERLOOP_REDIS_URL": f"redis://{to_redis.address}/0"}
        variables["EVERLOOP_PROFILE"] = f"http://{to_gateway.address}"
        code, found = await findings(Shell(tmp_path, variables))

    assert code == 1
    assert [state for state, _ in found["clocks"]] == ["problem", "problem"]
    for (_, said), whose in zip(found["clocks"], ("Redis", "the gateway"), strict=True):
        assert re.match(rf"this machine is \d+ s {which} {whose}: .*; let both follow NTP$", said)


@pytest.fixture
async def shell_of_blobs(tmp_path: Path) -> AsyncGenerator[Shell]:
    """Yield a shell with a Redis of its own, without a blob store yet; there is no Temporal."""
    async with running_valkey(tmp_path) as (_, url):
        yield Shell(tmp_path, {"EVERLOOP_REDIS_URL": url, "TEMPORAL_ADDRESS": f"{LOOPBACK}:1"})


async def make_store(shell: Shell, settings: BlobSettings) -> None:
    """Make the blob store, as the first worker does."""
    async with (
        connect_redis(shell.variables["EVERLOOP_REDIS_URL"], NO_CIPHER) as redis,
        opened_blobs(settings, redis),
    ):
        pass


async def test_a_doctor_finds_a_directory_of_blobs_that_it_may_not_write(shell_of_blobs: Shell) -> None:
    """It says so with the remedy, and changes nothing in the store."""
    shell, directory = shell_of_blobs, shell_of_blobs.folder / "blobs"
    await make_store(shell, BlobSettings(blob_directory=directory))
    folders = [directory, *(each for each in directory.rglob("*") if each.is_dir())]
    obedient: Sequence[str] = ()
    if os.geteuid() == 0:  # root may write all the same
        if not (setpriv := shutil.which("setpriv")):
            pytest.skip("root writes everywhere, and setpriv, which prevents it, is not installed")
        obedient = (setpriv, "--bounding-set", "-dac_override", "--inh-caps", "-dac_override")
    for each in folders:
        each.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        code, found = await findings(shell, (*obedient, *COMMAND))
    finally:
        for each in folders:
            each.chmod(stat.S_IRWXU)

    assert code == 1
    assert found["blobs"] == [
        ("problem", f"the blob directory {directory} cannot be used now: {DENIED}"),
    ]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("AccessDenied", "access is denied; allow s3:GetObject, s3:PutObject"),
        ("RequestTimeTooSkewed", "its clock and that of this machine differ; let both follow NTP"),
    ],
)
async def test_a_doctor_finds_a_bucket_that_refuses_what_is_put(
    shell_of_blobs: Shell, error: str, says: str
) -> None:
    """Read access is not enough."""
    shell = shell_of_blobs
    with running_moto() as endpoint, running_s3_relay(endpoint) as relay:
        bucket = new_bucket(endpoint)
        await make_store(shell, BlobSettings(blobs="s3", s3_bucket=bucket, s3_endpoint=relay.endpoint))
        variables = {"EVERLOOP_BLOBS": "s3", "EVERLOOP_S3_BUCKET": bucket}
        variables["EVERLOOP_S3_ENDPOINT"] = relay.endpoint
        used = Shell(shell.folder, {**shell.variables, **variables})
        _, well = await findings(used)
        relay.refuses = lambda request: error if request.startswith("PUT") else ""
        code, found = await findings(used)

    assert [state for state, _ in well["blobs"]] == ["ok"]
    assert code == 1
    ((state, said),) = found["blobs"]
    assert state == "problem"
    assert said.startswith(f"the S3 bucket {bucket} at {relay.endpoint} cannot be used now: {says}")
