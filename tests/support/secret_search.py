"""Searches all data of a deployment for a text: plain, inside base64, or compressed."""

import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import cast

from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis, primaries
from everloop.workflows.contract.deletion_payloads import DELETION_WORKFLOW_TYPE


def contains(content: bytes, text: str) -> bool:
    """Return True if the content has the text in any form."""
    return any(form in content for form in _forms(text.encode()))


def files_with(directory: Path, text: str) -> set[str]:
    """Return the names of the files and folders directly in `directory` that have the text."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).parts[0] for path in files if contains(_content(path), text)}


def tree_with(directory: Path, text: str) -> set[str]:
    """Return the files and folders below `directory` whose name or content has the text."""
    return {
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if contains(path.name.encode(), text) or (path.is_file() and contains(_content(path), text))
    }


async def temporal_with(client: Client, text: str) -> set[str]:
    """Return the workflows and schedules with the text, except for records of deletions."""
    found = set[str]()
    async for run in client.list_workflows():
        if run.workflow_type == DELETION_WORKFLOW_TYPE:
            continue
        content = [run.raw_info.SerializeToString()]
        with suppress(RPCError):  # it is deleted by now
            handle = client.get_workflow_handle(run.id, run_id=run.run_id)
            content += [event.SerializeToString() async for event in handle.fetch_history_events()]
        if any(contains(each, text) for each in content):
            found.add(run.id)
    async for schedule in await client.list_schedules():
        described = await client.get_schedule_handle(schedule.id).describe()
        if contains(described.raw_description.SerializeToString(), text):
            found.add(schedule.id)
    return found


def _content(path: Path) -> bytes:
    """Return a file's content, or nothing if it is gone, as a database's journal is at each commit."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


async def redis_keys_with(url: str, text: str) -> set[str]:
    """Return the keys whose name or value has the text."""
    found = set[str]()
    async with connect_redis(url, NO_CIPHER) as client:
        for server in await primaries(client):
            place = server.connection_pool.connection_kwargs
            server_url = f"redis://{place['host']}:{place['port']}/{place.get('db') or 0}"
            async with Redis.from_url(server_url) as redis:
                keys = cast("list[bytes]", await redis.keys())
                found |= {key.decode() for key in keys if contains(key + await _value(redis, key), text)}
    return found


async def _value(redis: Redis, key: bytes) -> bytes:
    """Return the complete content of a value of any type."""
    match await redis.type(key):
        case b"string":
            value: object = await redis.get(key)
        case b"hash":
            value = await redis.hgetall(key)
        case b"list":
            value = await redis.lrange(key, 0, -1)
        case b"zset":
            value = await redis.zrange(key, 0, -1)
        case b"stream":
            value = await redis.xrange(key)
        case b"none":
            value = b""  # deleted by now
        case kind:
            raise AssertionError(f"{key!r} is a {kind!r}; teach this search to read it")
    return b"\n".join(_words(value))


def _words(value: object) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
        with suppress(zlib.error):  # as `Cipher.pack` writes it
            yield zlib.decompress(value.removeprefix(b"z"))
    elif isinstance(value, dict):
        for pair in cast("dict[object, object]", value).items():
            yield from _words(pair)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            yield from _words(item)


def _forms(text: bytes) -> list[bytes]:
    """Return the text, and the part of its base64 that does not depend on the bytes around it."""
    encoded: list[bytes] = []
    for before in range(3):
        length = before + len(text)
        whole = b64encode(bytes(before) + text).rstrip(b"=")
        encoded.append(whole[ceil(before * 8 / 6) : length * 8 // 6])
    return [text, *encoded]
