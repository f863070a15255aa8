"""Exceptions for users in other processes: multiprocessing and Celery pickle them."""

import copy
import pickle
from datetime import timedelta

import pytest

import everloop
from everloop import AuthRequired, InputRequired, client, testing
from everloop.agents import errors as agent_errors
from everloop.client import (
    BusyError,
    Result,
    TaskNotCompletedError,
    TaskState,
    UnreachableError,
    WaitTimeoutError,
)
from everloop.models import interface as model_errors
from everloop.stores.artifacts import artifact_errors
from everloop.workflows.contract.artifacts import ArtifactStatus

_RESULT = Result(id="weather-1", state=TaskState.FAILED, error="no such city", data={"degrees": 21})

_EXAMPLES: list[Exception] = [
    InputRequired("Which city?", "selection", options=["Rome", "Oslo"]),
    AuthRequired("Your token, please.", "token", timeout=timedelta(hours=1)),
    BusyError("not now", retry_after=2.5, reason="TOO_MANY_REQUESTS", status=429),
    UnreachableError("no answer", advice="is it running?", is_unsent=True, cause="refused", status=502),
    WaitTimeoutError("task weather-1 is working", _RESULT),
    TaskNotCompletedError("task weather-1 has failed", _RESULT),
    model_errors.ModelBusyError("slow down", retry_after=timedelta(seconds=3), codes=("rate_limit",)),
    model_errors.ModelDownError("away", retry_after=timedelta(seconds=3)),
    artifact_errors.ArtifactIdError(),
    artifact_errors.ArtifactNameError("report", "name", "is empty"),
    artifact_errors.ArtifactMissingError("report"),
    artifact_errors.ArtifactExistsError("report"),
    artifact_errors.ArtifactClosedError("report", ArtifactStatus.COMPLETE),
    artifact_errors.ArtifactKindError("report", 0, "text", "expected rows"),
    artifact_errors.ArtifactReplacedError("report", 0),
    artifact_errors.ArtifactOvertakenError("report"),
    artifact_errors.PartCountError("report", 1_001),
    artifact_errors.PartIndexError("report", 3, 2),
    artifact_errors.RowSchemaError("no type"),
    artifact_errors.RowInvalidError(1, "degrees is missing"),
]  # fmt: skip


def _public() -> list[type[Exception]]:
    named = [
        *(getattr(module, name) for module in (everloop, client, testing) for name in module.__all__),
        *(each for module in (agent_errors, artifact_errors, model_errors) for each in vars(module).values()),
    ]
    found = {
        each for each in named if isinstance(each, type) and issubclass(each, Exception) and _is_ours(each)
    }
    return sorted(found, key=lambda each: each.__qualname__)


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("everloop.")


def _made(kind: type[Exception]) -> Exception:
    return next((each for each in _EXAMPLES if type(each) is kind), None) or kind("what was wrong")


@pytest.mark.parametrize("kind", _public())
def test_an_exception_survives_pickle_and_deepcopy(kind: type[Exception]) -> None:
    """With its message and all of its fields."""
    error = _made(kind)

    for copied in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error), copy.copy(error)):  # noqa: S301 -- our own
        assert type(copied) is kind
        assert (str(copied), copied.args, vars(copied)) == (str(error), error.args, vars(error))
