"""Keys that an issuer publishes: fetched over HTTP on demand, at a limited rate."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from everloop.gateway.auth.jwt import (
    CACHE_SECONDS,
    FRESH,
    PUBLIC_ALGORITHMS,
    REFETCH_PAUSE,
    Jwks,
    JwtScheme,
    TokenRules,
)
from everloop.gateway.auth.schemes import CredentialsError
from everloop.gateway.errors import UnavailableNowError
from tests.support.servers.tokens import AUDIENCE, ISSUER, RSA, Issuer, SigningKey, running_issuer

OLD, NEW = SigningKey(kid="old"), SigningKey(kid="new")


@dataclass
class Site:
    """An issuer that publishes OLD, and a scheme that trusts it; the test sets the clock, in seconds."""

    issuer: Issuer
    now: float = 0.0

    def __post_init__(self) -> None:
        self.keys = Jwks(self.issuer.url, PUBLIC_ALGORITHMS, clock=lambda: self.now)
        self.scheme = JwtScheme(self.keys, TokenRules(ISSUER, AUDIENCE))

    async def takes(self, token: str) -> bool:
        """True if the token is accepted. Raises an error if the issuer does not answer."""
        try:
            return await self.scheme.authenticate({"authorization": f"Bearer {token}"}, "") is not None
        except CredentialsError:
            return False


@pytest.fixture
def site() -> Iterator[Site]:
    with running_issuer(OLD) as issuer:
        yield Site(issuer)


async def test_keys_are_fetched_once_for_many_tokens(site: Site) -> None:
    """Concurrent tokens cause one fetch, also before any key is cached."""
    assert all(await asyncio.gather(*(site.takes(OLD.token()) for _ in range(20))))
    site.now = FRESH
    assert await site.takes(OLD.token())
    assert site.issuer.asked == 1


async def test_a_new_key_is_known_as_soon_as_a_token_names_it(site: Site) -> None:
    """After the issuer changes its key, tokens of both keys are accepted while it publishes both."""
    assert await site.takes(OLD.token())
    site.issuer.keys = [OLD.public(), NEW.public()]
    site.now = REFETCH_PAUSE
    assert await site.takes(NEW.token())
    assert await site.takes(OLD.token())
    assert site.issuer.asked == 2


async def test_a_key_that_is_withdrawn_is_good_for_ten_minutes_at_most(site: Site) -> None:
    """After ten minutes the keys are fetched again, whatever tokens name."""
    assert await site.takes(OLD.token())
    site.issuer.keys = [NEW.public()]
    site.now = FRESH + 1
    assert not await site.takes(OLD.token())
    assert await site.takes(NEW.token())
    assert site.issuer.asked == 2


async def test_strangers_do_not_make_us_ask_the_issuer_all_the_time(site: Site) -> None:
    """Tokens with unknown keys are refused, and cause at most one fetch in 30 s."""
    for second in range(60):
        site.now = float(second)
        assert not await site.takes(SigningKey(kid=f"made-up-{second}").token())
    assert site.issuer.asked == 2


async def test_without_the_issuer_nobody_can_tell(site: Site) -> None:
    """The answer is 503 with Retry-After, not 401: the token may be valid.

    It is accepted once the issuer is back.
    """
    site.issuer.status = 500
    with pytest.raises(UnavailableNowError) as caught:
        await site.takes(OLD.token())
    site.issuer.status = 200
    with pytest.raises(UnavailableNowError):
        await site.takes(OLD.token())
    assert site.issuer.asked == 1
    site.now = REFETCH_PAUSE
    assert caught.value.retry_after
    assert "127.0.0.1" not in str(caught.value)
    assert await site.takes(OLD.token())


async def test_known_keys_hold_for_an_hour_without_the_issuer(site: Site) -> None:
    """Tokens with an unknown key get 503 during the outage; after the hour, so do tokens with cached keys."""
    assert await site.takes(OLD.token())
    site.issuer.status = 503
    site.now = CACHE_SECONDS
    assert await site.takes(OLD.token())
    with pytest.raises(UnavailableNowError):
        await site.takes(NEW.token())
    site.now = CACHE_SECONDS + REFETCH_PAUSE
    with pytest.raises(UnavailableNowError):
        await site.takes(OLD.token())


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"keys": 1}', "[" * 100_000, "<html>", '{"keys": {}}'])
async def test_an_answer_that_is_no_set_of_keys_is_none(site: Site, body: str) -> None:
    """An invalid key set is treated as an outage of the issuer; the log reports it without the content."""
    site.issuer.body = body
    with capture_logs() as logs, pytest.raises(UnavailableNowError):
        await site.takes(OLD.token())
    assert "keys of tokens cannot be fetched" in [entry["event"] for entry in logs]


async def test_keys_that_are_for_something_else_check_no_tokens(site: Site) -> None:
    """Symmetric keys, encryption keys, keys of another algorithm, and malformed keys are ignored."""
    site.issuer.keys = [
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"},
        OLD.public(use="enc"),
        NEW.public(alg="ES512"),
        {"kty": "RSA", "kid": "half", "n": "AQAB"},
        {"kid": "nothing"},
    ]
    assert not await site.takes(OLD.token())
    assert not await site.takes(NEW.token())


async def test_a_key_is_good_for_the_algorithm_that_it_names(site: Site) -> None:
    """RFC 7517 §4.4; a key without an algorithm is valid for all of its type."""
    named, free = SigningKey("RS256", "named", RSA), SigningKey("RS512", "free", RSA)
    site.issuer.keys = [named.public(alg="RS256"), free.public()]
    assert await site.takes(named.token())
    assert not await site.takes(SigningKey("RS512", "named", RSA).token())
    assert await site.takes(free.token())


async def test_a_known_key_does_not_wait_for_an_issuer_that_hangs(site: Site) -> None:
    """Tokens with cached keys are accepted while a fetch runs in the background."""
    assert await site.takes(OLD.token())
    site.issuer.release = threading.Event()
    site.issuer.reached.clear()
    site.now = FRESH + 1
    with capture_logs() as logs:
        assert all(await asyncio.gather(*(site.takes(OLD.token()) for _ in range(20))))
        still_asking = list(logs)
        assert await asyncio.to_thread(site.issuer.reached.wait, 30)
    site.issuer.release.set()
    assert still_asking == []
    assert site.issuer.asked == 2
