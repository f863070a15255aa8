"""Exceptions of the A2A client, classified for a call."""

from typing import Any

import httpx
import pytest
from a2a.client.errors import A2AClientError
from a2a.compat.v0_3.types import Task
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InternalError, InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import ParseDict, ParseError
from pydantic import ValidationError

from everloop.agents.peer.peer_errors import (
    PeerAwayError,
    PeerCredentialsError,
    PeerError,
    PeerRefusedError,
    is_unsent,
    peer_error,
)
from everloop.client.errors import BusyError, client_error

_REQUEST = httpx.Request("POST", "http://w.example")


def _caused(cause: Exception) -> A2AClientError:
    error = A2AClientError("in words")
    error.__cause__ = cause
    return error


def _status(status: int, **answer: str | dict[str, str]) -> A2AClientError:
    headers = answer.pop("headers", None)
    assert not isinstance(headers, str)
    response = httpx.Response(status, json=answer, headers=headers, request=_REQUEST)
    return _caused(httpx.HTTPStatusError("", request=_REQUEST, response=response))


def _unreadable(answer: dict[str, Any]) -> Exception:
    with pytest.raises(ParseError) as raised:
        ParseDict(answer, pb.StreamResponse(), ignore_unknown_fields=True)
    return raised.value


def _unreadable_of_0_3(answer: dict[str, Any]) -> Exception:
    with pytest.raises(ValidationError) as raised:
        Task.model_validate({"kind": "task", "status": {"state": "working"}, **answer})
    return raised.value


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (_status(401), PeerCredentialsError, "HTTP 401"),
        (_status(403, error={"message": "not\nyou"}), PeerCredentialsError, "HTTP 403: not you"),
        (_status(503), PeerAwayError, "HTTP 503"),
        (_caused(httpx.ConnectError("refused")), PeerAwayError, "no connection could be made"),
        (_caused(httpx.ReadTimeout("")), PeerAwayError, "too long"),
        (A2AClientError("JSON Decode Error"), PeerRefusedError, "no A2A"),
        (KeyError("result"), PeerRefusedError, "no A2A"),
        (_unreadable({"task": {"id": 5}}), PeerRefusedError, "no A2A (id: expected string"),
        (
            _unreadable({"task": {"artifacts": [{"parts": [{"text": 3}]}]}}),
            PeerRefusedError,
            "no A2A (artifacts.parts.text: expected string",
        ),
        (
            _unreadable({"task": {"status": {"timestamp": "now"}}}),
            PeerRefusedError,
            "no A2A (task.status.timestamp: Failed",
        ),
        (_unreadable_of_0_3({"id": "t"}), PeerRefusedError, "no A2A (contextId: Field required)"),
        (_unreadable_of_0_3({"contextId": "c"}), PeerRefusedError, "no A2A (id: Field required)"),
        (A2AClientError("it has no 'result'"), PeerRefusedError, "no A2A (it has no 'result')"),
        (_status(501), PeerRefusedError, "HTTP 501"),
        (TaskNotFoundError(), PeerRefusedError, "does not know its task any more; ask it again"),
        (UnsupportedOperationError(), PeerRefusedError, "not supported"),
        (InvalidParamsError("choose blue"), PeerRefusedError, "choose blue"),
        (InternalError("x" * 5000), PeerRefusedError, "x…"),
    ],
)
def test_each_exception_means_one_thing(error: Exception, kind: type[PeerError], text: str) -> None:
    """Retry later, check credentials, give up, or continue in another way."""
    meant = peer_error(client_error(error, "it"))

    assert type(meant) is kind
    assert text in str(meant)
    assert len(str(meant)) < 1100


@pytest.mark.parametrize(
    ("error", "is_not"),
    [
        (_caused(httpx.ConnectError("")), True),
        (_status(503), True),
        (_status(502), False),
        (_caused(httpx.ReadError("")), False),
    ],
)
def test_what_may_have_arrived(error: Exception, *, is_not: bool) -> None:
    """Every request may be repeated after an error that proves that the peer did not accept it."""
    assert is_unsent(client_error(error, "it")) is is_not


@pytest.mark.parametrize(
    ("header", "wait"), [("7", 7), ("99999999", 600), ("Fri, 01 Jan 2100 00:00:00 GMT", 600), ("", 1)]
)
def test_how_long_the_peer_wants_to_be_left_alone(header: str, wait: float) -> None:
    """In seconds, or until a date, up to a limit."""
    meant = client_error(_status(503, headers={"retry-after": header}), "it")

    assert isinstance(meant, BusyError)
    assert meant.retry_after == wait
