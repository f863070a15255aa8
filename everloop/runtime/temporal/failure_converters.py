"""Conversion of exceptions to Temporal failures: text and place, without local paths."""

import re
import sys
from pathlib import Path

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError

from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.workflows.contract.failures import BLOB_MISSING

_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)


class PayloadFailureConverter(DefaultFailureConverter):
    """Reports payloads that an activity cannot load or decrypt by their cause.

    The SDK wraps it: "Failed decoding arguments" is always retryable, and "Failed decoding heartbeat
    details" never is, whatever the store reported. Stacks are those of `portable_stack`.
    """

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        super().to_failure(_unwrapped(exception), payload_converter, failure)
        failure.stack_trace = portable_stack(failure.stack_trace)


class EncryptedFailureConverter(PayloadFailureConverter):
    """Also moves messages and stack traces to the fields that the codec encrypts, as the SDK would."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        super().to_failure(exception, payload_converter, failure)
        said = {"message": failure.message, "stack_trace": failure.stack_trace}
        failure.encoded_attributes.CopyFrom(payload_converter.to_payloads([said])[0])
        failure.message, failure.stack_trace = "Encoded failure", ""


def _unwrapped(exception: BaseException) -> BaseException:
    cause = exception.__cause__
    is_wrapper = isinstance(exception, ApplicationError) and exception.type is None
    return cause if cause and is_wrapper and _is_of_the_store(cause) else exception


def _is_of_the_store(error: BaseException) -> bool:
    return isinstance(error, BlobsUnavailableError | EncryptionError) or (
        isinstance(error, ApplicationError) and error.type == BLOB_MISSING
    )


def portable_stack(stack: str) -> str:
    """Return a stack as lines such as `everloop/activities/tools/tool_call.py:12 run`; other text stays.

    Source code is left out: history has more readers than the code, and lives longer.
    """
    frames = [f"{_portable(f['file'])}:{f['line']} {f['name']}" for f in _FRAME.finditer(stack)]
    return "\n".join(frames) or stack


def _portable(file: str) -> str:
    """Return the path of a module below its import root, or else the file's name."""
    folders = [folder for folder in sys.path if folder and file.startswith(f"{folder}/")]
    return file[len(max(folders, key=len)) + 1 :] if folders else Path(file).name
