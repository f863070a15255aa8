"""Errors of failures of the blob store, and the keys of payloads."""

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError

from everloop.runtime.blobs import BlobsUnavailableError, check_key
from everloop.runtime.temporal.blob_payloads import payload_folder
from everloop.runtime.temporal.failure_converters import PayloadFailureConverter, portable_stack
from everloop.workflows.contract.failures import BLOB_MISSING

LOST = ApplicationError("lost", type=BLOB_MISSING, non_retryable=True)
AWAY = BlobsUnavailableError("the store", "it is away")


@pytest.mark.parametrize(
    ("wrapper", "cause", "expected", "non_retryable"),
    [
        (ApplicationError("Failed decoding arguments"), LOST, BLOB_MISSING, True),
        (ApplicationError("Failed decoding arguments"), AWAY, "BlobsUnavailableError", False),
        (ApplicationError("Failed decoding heartbeat details", non_retryable=True), LOST, BLOB_MISSING, True),
        (
            ApplicationError("Failed decoding heartbeat details", non_retryable=True),
            AWAY,
            "BlobsUnavailableError",
            False,
        ),
        (ApplicationError("a tool's own", type="Own", non_retryable=True), AWAY, "Own", True),
        (ApplicationError("Failed decoding arguments"), ValueError("not JSON"), "", False),
    ],
)
def test_failure_says_what_the_store_said(
    wrapper: ApplicationError, cause: Exception, expected: str, *, non_retryable: bool
) -> None:
    """The store's own error replaces the SDK's wrapper around it; every other failure stays unchanged."""
    wrapper.__cause__ = cause
    failure = Failure()
    PayloadFailureConverter().to_failure(wrapper, PayloadConverter.default, failure)
    assert failure.application_failure_info.type == expected
    assert failure.application_failure_info.non_retryable is non_retryable


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (
            '  File "/env/site/everloop/worker.py", line 7, in work\n    open("/home/ann")\n    ^^^^\n',
            "everloop/worker.py:7 work",
        ),
        (
            '  File "/env/a.py", line 1, in <module>\n\n  File "/home/ann/agent.py", line 12, in look\n',
            "a.py:1 <module>\nagent.py:12 look",
        ),
        ('  File "<frozen importlib._bootstrap>", line 1, in _f\n', "<frozen importlib._bootstrap>:1 _f"),
        ("main.go:3\nrun.go:4", "main.go:3\nrun.go:4"),
        ("", ""),
    ],
)
def test_stacks_name_modules_as_they_are_imported(
    stack: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stacks name modules as imported, and agents' files by name; other languages' stacks stay unchanged."""
    monkeypatch.setattr("sys.path", ["", "/env", "/env/site"])
    assert portable_stack(stack) == expected


@pytest.mark.parametrize(
    ("workflow_id", "folder"),
    [
        ("task", "payloads/task"),
        ("task/call-1", "payloads/task"),
        ("..", "payloads/%2E%2E"),
        ("a b\n", "payloads/a%20b%0A"),
    ],
)
def test_folder_is_made_of_the_task_id(workflow_id: str, folder: str) -> None:
    """A task and its children share a folder; no id leads out of it."""
    assert payload_folder(workflow_id) == folder


def test_folder_of_a_long_id_is_a_key() -> None:
    """An id of 1,000 characters, the most that Temporal allows, gives a valid key."""
    key = f"{payload_folder('ä' * 1000)}/content"
    check_key(key)
