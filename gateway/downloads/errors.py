"""What a client is told when an artifact cannot be downloaded."""

import uuid
from collections.abc import Mapping
from http import HTTPStatus

import structlog
from starlette.responses import JSONResponse, Response

from everloop.gateway.bindings.http_errors import headers_of
from everloop.gateway.errors import STORE_FAILURES, RefusalError, http_status
from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, BlobsUnavailableError
from everloop.stores.artifacts.interface import (
    ArtifactIdError,
    ArtifactMissingError,
    ArtifactReplacedError,
    PartIndexError,
)

RETRY_AFTER = 2
"""Seconds after which a client may ask a store again that did not answer."""

UNAVAILABLE = (BlobsUnavailableError, *STORE_FAILURES)

_MISSING = (ArtifactMissingError, ArtifactIdError, PartIndexError)

_DAMAGES: dict[type[Exception], str] = {
    BlobCorruptError: "damaged: its checksum is another one than when it was stored",
    BlobMissingError: "lost: the store no longer has it",
}

_log = structlog.get_logger()


class DownloadError(Exception):
    """The request is answered with this status; the client reads the text."""

    def __init__(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


def error_response(failure: Exception, what: str) -> Response:
    """Return the answer to a failure; `what` names in words of the client what could not be had.

    What we did not foresee is logged whole under a reference, which is all that the client is told.
    """
    error = failure if isinstance(failure, DownloadError) else _explain(failure, what)
    answer = {"code": error.status.value, "status": error.status.name, "message": str(error)}
    return JSONResponse({"error": answer}, error.status, {"Cache-Control": "no-store", **error.headers})


def _explain(failure: Exception, what: str) -> DownloadError:
    if isinstance(failure, RefusalError):
        return DownloadError(HTTPStatus(http_status(failure)), str(failure), headers_of(failure))
    if isinstance(failure, _MISSING):
        return DownloadError(HTTPStatus.NOT_FOUND, f"no {what} here")
    if isinstance(failure, (ArtifactReplacedError, *UNAVAILABLE)):
        _log.warning("download cannot be served now", what=what, error=type(failure).__name__)
        text = "the artifact store cannot tell now; nothing is lost: ask again in a few seconds"
        return DownloadError(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": str(RETRY_AFTER)})
    if damage := next((words for kind, words in _DAMAGES.items() if isinstance(failure, kind)), ""):
        _log.error("content of an artifact is lost", what=what, error=str(failure))
        return DownloadError(HTTPStatus.INTERNAL_SERVER_ERROR, f"{what} is {damage}")
    reference = uuid.uuid4().hex[:12]
    _log.error("download failed", reference=reference, exc_info=failure)
    return DownloadError(HTTPStatus.INTERNAL_SERVER_ERROR, f"internal error, reference {reference}")
