"""Buckets of the tests, and requests to an S3 server that only tests make."""

import contextlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

from everloop.local.servers import LOOPBACK, free_port

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextlib.contextmanager
def s3_credentials() -> Generator[None]:
    """Set credentials for boto3 that each test server accepts."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    yield
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


@contextlib.contextmanager
def running_moto() -> Generator[str]:
    """Yield the endpoint of an S3 server in this process, without persistence and authentication."""
    server = ThreadedMotoServer(ip_address=LOOPBACK, port=free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with s3_credentials():
        yield f"http://{host}:{port}"
    server.stop()


def client_of(endpoint: str) -> "S3Client":
    """Return a client beside the store's own."""
    return boto3.client("s3", endpoint_url=endpoint)


def new_bucket(endpoint: str) -> str:
    """Create a bucket of the test's own."""
    name = f"blobs-{uuid4()}"
    client_of(endpoint).create_bucket(Bucket=name)
    return name


def unfinished_uploads(endpoint: str, bucket: str) -> int:
    """Count the multipart uploads that were neither completed nor aborted."""
    return len(client_of(endpoint).list_multipart_uploads(Bucket=bucket).get("Uploads", []))
