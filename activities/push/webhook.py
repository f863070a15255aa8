"""One POST to a webhook, to an address that was judged a moment before, and nowhere else."""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import httpcore
import httpx

from everloop.runtime.outbound import (
    ForbiddenAddressError,
    JudgedBackend,
    UnfitUrlError,
    WebhookPolicy,
    read_url,
)

TIME_LIMIT = 10.0
"""Seconds for all of it, from the look-up of the name to the end of the answer."""

ANSWER_BYTES = 4_096
"""How much of an answer is read, so that its sender hears no error; nobody looks at it."""


class UndeliveredError(Exception):
    """The webhook did not take the notification. The message holds nothing of the URL but its host."""


class RefusedError(UndeliveredError):
    """We did not send it, because of where it would have gone."""


@dataclass(frozen=True)
class Answer:
    """What a webhook answered; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]


class Webhooks:
    """Posts by HTTP/1.1, without proxies, redirects or connections that are kept.

    `tls` is for servers whose certificates are not commonly known; `time_limit` in seconds is for one post.
    """

    def __init__(
        self, policy: WebhookPolicy, *, tls: ssl.SSLContext | None = None, time_limit: float = TIME_LIMIT
    ) -> None:
        self._policy = policy
        self._tls = tls or httpx.create_ssl_context()
        self.time_limit = time_limit

    async def post(self, url: str, content: bytes, headers: Mapping[str, str], *, owner: str = "") -> Answer:
        """Post for an owner, and return whatever the answer is.

        Raises:
            RefusedError: this is no place to post to.
            UndeliveredError: there was no answer in time.
        """
        try:
            async with asyncio.timeout(self.time_limit):
                return await self._post(read_url(url), content, headers, owner)
        except TimeoutError:
            raise UndeliveredError(f"the webhook did not answer within {self.time_limit:.0f} s") from None
        except UnfitUrlError as error:
            raise RefusedError(f"the URL of the webhook {error}") from None
        except ForbiddenAddressError as error:
            raise RefusedError(f"nothing was sent: {error}") from None
        except (OSError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise UndeliveredError(f"no answer from the webhook ({type(error).__name__})") from None

    async def _post(self, url: httpx.URL, content: bytes, headers: Mapping[str, str], owner: str) -> Answer:
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        backend = JudgedBackend(self._policy, is_plain=url.scheme == "http", owner=owner)
        pairs = [("Host", url.netloc.decode("ascii")), ("Connection", "close"), *headers.items()]
        async with (
            httpcore.AsyncConnectionPool(ssl_context=self._tls, network_backend=backend) as pool,
            pool.stream("POST", target, headers=pairs, content=content) as response,
        ):
            answer = Answer(response.status, _decoded(response.headers))
            read = 0
            async for piece in response.aiter_stream():
                read += len(piece)
                if read >= ANSWER_BYTES:
                    break
        return answer


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
