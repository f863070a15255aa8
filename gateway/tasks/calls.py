"""What calls to Temporal have in common: how long they may take, and what their failures mean."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everloop.gateway.errors import (
    PayloadLostError,
    PayloadsUnavailableError,
    TaskUnknownError,
    TemporalUnavailableError,
)
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.temporal.describe import is_not_found, is_unavailable
from everloop.workflows.contract.failures import BLOB_MISSING

CALL_TIMEOUT = 5.0
"""Seconds for one call to Temporal."""


@asynccontextmanager
async def translate_temporal_errors(seconds: float = CALL_TIMEOUT) -> AsyncGenerator[None]:
    """Expect an answer in time.

    Raises:
        TemporalUnavailableError: there is none, or it says that Temporal cannot answer now.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TemporalUnavailableError from error
    except RPCError as error:
        if is_unavailable(error):
            raise TemporalUnavailableError from error
        raise


@asynccontextmanager
async def translate_not_found(task_id: str) -> AsyncGenerator[None]:
    """Expect that Temporal knows the task.

    Raises:
        TaskUnknownError: it does not.
    """
    try:
        yield
    except RPCError as error:
        if is_not_found(error):
            raise TaskUnknownError(task_id) from error
        raise


@asynccontextmanager
async def translate_blob_errors() -> AsyncGenerator[None]:
    """Expect that the large payloads of an answer can be had from the blob store.

    Raises:
        PayloadLostError: one is lost for good.
        PayloadsUnavailableError: the store does not tell now.
    """
    try:
        yield
    except BlobsUnavailableError as error:
        raise PayloadsUnavailableError from error
    except ApplicationError as error:
        if error.type == BLOB_MISSING:
            raise PayloadLostError from error
        raise
