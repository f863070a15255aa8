"""The keys that an issuer of tokens publishes (RFC 7517), fetched when a token needs them.

They are asked for again every ten minutes, so that a key that the issuer withdraws is not taken any more; and
at once when a token names a key that nobody knows yet, but at most every 30 s, whatever strangers send. While
the issuer does not answer, the keys that it told last hold for an hour, and nobody waits for it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import httpx
import structlog
from jwt import PyJWK, PyJWTError

from everloop.gateway.jwt_keys import (
    UnfitKeyError,
    UnknownKeyError,
    VerificationKey,
    VerificationKeys,
    public_key,
)
from everloop.gateway.refusals import UnavailableNowError
from everloop.runtime.bounded_answers import UNCOMPRESSED, AnswerTooLargeError, bounding

REFETCH_PAUSE = 30.0
"""Seconds between two requests to the issuer, at least."""

FRESH = 600.0
"""Seconds after which the keys are asked for again."""

KEPT = 3600.0
"""Seconds that keys hold while the issuer does not answer."""

PATIENCE = 0.5
"""Seconds that the callers with a known key wait for a key set that is no longer fresh.

So a key that the issuer has withdrawn is refused at once, and an issuer that hangs delays nobody for long.
"""

FETCH_TIMEOUT = 5.0
RETRY_AFTER = 5

MAX_KEY_SET = 1_048_576
"""Bytes."""

MAX_KEY_VALUES = 100_000

_UNAVAILABLE = (
    "the server that tells whose tokens are good does not answer; send the same request again later"
)

_log = structlog.get_logger()


class Jwks(VerificationKeys):
    """The keys at a URL. `clock` counts seconds."""

    def __init__(
        self, url: str, algorithms: Collection[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self._algorithms = algorithms
        self._clock = clock
        self._keys: Mapping[str, VerificationKey] = {}
        self._told_at: float | None = None
        self._asked_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> VerificationKey:
        key = self._known(key_id)
        if key is None or self._age > KEPT:
            await self._fetch_unless_just_done()
        elif self._age > FRESH:
            # After a failure nobody waits: the issuer is asked in the background until it answers again.
            await self._fetch_unless_just_done(PATIENCE if self._has_answered else 0)
        key = self._known(key_id)
        if key and self._age <= KEPT:
            return key
        if not self._has_answered:  # it may be a new one
            raise UnavailableNowError(_UNAVAILABLE, retry_after=RETRY_AFTER)
        raise UnknownKeyError

    @property
    def _has_answered(self) -> bool:
        """Whether the issuer told its keys when it was asked last."""
        return self._told_at is not None and self._told_at == self._asked_at

    @property
    def _age(self) -> float:
        return float("inf") if self._told_at is None else self._clock() - self._told_at

    def _known(self, key_id: str | None) -> VerificationKey | None:
        if key_id is None:  # RFC 7517 §4.5: where there is one key only, it needs no name
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def _fetch_unless_just_done(self, patience: float | None = None) -> None:
        """Ask the issuer, once for all who wait; a caller who leaves does not stop it for the others.

        `patience` is how many seconds the caller waits; None: until the issuer has answered, or is given up.
        """
        if self._fetching is None or self._fetching.done():
            now = self._clock()
            if self._asked_at is not None and now - self._asked_at < REFETCH_PAUSE:
                return
            self._asked_at = now
            self._fetching = asyncio.create_task(self._fetch(now))
        await asyncio.wait({self._fetching}, timeout=patience)

    async def _fetch(self, now: float) -> None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT), self._http_client() as http:
                answer = (await http.get(self._url)).raise_for_status()
            keys = _read_keys(answer.json(), self._algorithms)
        except (httpx.HTTPError, AnswerTooLargeError, TimeoutError, ValueError, RecursionError) as error:
            _log.warning("keys of tokens cannot be fetched", error=type(error).__name__)
            return
        self._keys, self._told_at = keys, now
        _log.info("keys of tokens fetched", keys=len(keys))

    @staticmethod
    def _http_client() -> httpx.AsyncClient:
        bound = bounding(limit=MAX_KEY_SET, values=MAX_KEY_VALUES)
        return httpx.AsyncClient(
            timeout=FETCH_TIMEOUT, headers=UNCOMPRESSED, event_hooks={"response": [bound]}
        )


def _read_keys(answer: object, algorithms: Collection[str]) -> dict[str, VerificationKey]:
    """Return the keys that tokens may be signed with; an issuer may list others too.

    Raises:
        ValueError: this is no set of keys.
    """
    listed = cast("dict[str, object]", answer).get("keys") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no set of keys")  # noqa: TRY004 -- it is what the server said, not our caller
    listed = cast("list[object]", listed)
    keys: dict[str, VerificationKey] = {}
    entries = [cast("dict[str, Any]", entry) for entry in listed if isinstance(entry, dict)]
    for entry in entries:
        if key := _read_key(entry, algorithms):
            keys[str(entry.get("kid", ""))] = key
    return keys


def _read_key(entry: dict[str, Any], algorithms: Collection[str]) -> VerificationKey | None:
    if entry.get("use", "sig") != "sig":
        return None
    try:
        return public_key(PyJWK(entry).key, algorithms, entry.get("alg"))
    except (PyJWTError, UnfitKeyError, ValueError, TypeError, KeyError):
        return None
