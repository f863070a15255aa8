"""Delivers push notifications, one at a time."""

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog
from structlog.contextvars import bound_contextvars
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everloop.activities.lease import PUSH_LEASE, CallLease
from everloop.activities.push.feed import News, Nothing, PushFeed, Subject, TaskWorkflows
from everloop.activities.telemetry import DeliveryOutcome, record_delivery
from everloop.runtime.outbound.policy import (
    ForbiddenAddressError,
    UnfitUrlError,
    WebhookPolicy,
    read_url,
    retry_after,
)
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfig, PushConfigs
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.calls import PUSH_FAILED, DeliverPushResult, PushRef
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.names import derive_push_event_id
from everloop.workflows.contract.ports import PushPort
from everloop.workflows.contract.tasks import TaskView

if TYPE_CHECKING:
    from httpx import URL

    from everloop.activities.push.notifications import NotificationBody

# One POST to a webhook, only to an address that was checked just before.

TIME_LIMIT = 10.0
"""Seconds for the whole post, from the look-up of the name to the end of the answer."""

ANSWER_BYTES = 4_096
"""Limit of the answer's bytes that are read and dropped, so that the sender gets no error."""

MOST_BYTES = 32_768
"""Limit of all bytes from a webhook. Interim answers (1xx) may be endless, and reading them would block a
worker."""


class UndeliveredError(Exception):
    """The webhook did not accept the notification. The message contains only the host of the URL."""


class RefusedError(UndeliveredError):
    """The notification was not sent, because its address is not allowed."""


@dataclass(frozen=True)
class WebhookResponse:
    """The answer of a webhook. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]


class Webhooks:
    """Posts by HTTP/1.1, without proxies, redirects or reuse of connections.

    `tls` is for servers with private certificates. `time_limit` is in seconds, for one post.
    """

    def __init__(
        self, policy: WebhookPolicy, *, tls: ssl.SSLContext | None = None, time_limit: float = TIME_LIMIT
    ) -> None:
        self._policy = policy
        self._tls = tls
        self.time_limit = time_limit

    async def post(
        self, url: str, content: bytes, headers: Mapping[str, str], *, owner: str = ""
    ) -> WebhookResponse:
        """Post for an owner, and return the answer, whatever its status.

        Raises:
            RefusedError: The address is not allowed.
            UndeliveredError: There was no answer in time.
        """
        import httpcore  # noqa: PLC0415 -- 4 MiB with TLS, which a worker without webhooks does not load
        import httpx  # noqa: PLC0415 -- likewise

        self._tls = self._tls or httpx.create_ssl_context()
        try:
            async with asyncio.timeout(self.time_limit):
                return await self._post(read_url(url), content, headers, owner)
        except TimeoutError as error:  # that of a look-up has a text
            problem = str(error) or f"the webhook did not answer within {self.time_limit:.0f} s"
            raise UndeliveredError(problem) from None
        except UnfitUrlError as error:
            raise RefusedError(f"the URL of the webhook {error}") from None
        except ForbiddenAddressError as error:
            raise RefusedError(f"nothing was sent: {error}") from None
        except (OSError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise UndeliveredError(f"no answer from the webhook ({type(error).__name__})") from None

    async def _post(
        self, url: "URL", content: bytes, headers: Mapping[str, str], owner: str
    ) -> WebhookResponse:
        import httpcore  # noqa: PLC0415 -- as in `post`

        from everloop.runtime.outbound.backend import OutboundBackend  # noqa: PLC0415 -- likewise

        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        is_plain = url.scheme == "http"
        backend = OutboundBackend(self._policy, is_plain=is_plain, owner=owner, most=MOST_BYTES)
        sent = [("Host", url.netloc.decode("ascii")), ("Connection", "close"), *headers.items()]
        async with (
            httpcore.AsyncConnectionPool(ssl_context=self._tls, network_backend=backend) as pool,
            pool.stream("POST", target, headers=sent, content=content) as response,
        ):
            pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
            answer = WebhookResponse(response.status, {name.lower(): value for name, value in pairs})
            read = 0
            async for piece in response.aiter_stream():
                read += len(piece)
                if read >= ANSWER_BYTES:
                    break
        return answer


DELIVERY_TIME = timedelta(hours=24)
"""Time for which a notification is retried, from the first failure at its webhook."""

_LONGEST_BACKOFF_EXPONENT = 10

_log = structlog.get_logger()


@dataclass(eq=False)
class PushDelivering(PushPort):
    """Posts the next notification of a client, and then records its acknowledgement.

    If the worker dies in between, it is posted again under the same id. One attempt at a time delivers to a
    webhook. The delivery ends when its client removes the config, or the store has lost it: only the client
    can set it again.
    """

    configs: PushConfigs
    views: TaskViews
    workflows: TaskWorkflows
    webhooks: Webhooks
    leases: ToolRecords

    def __post_init__(self) -> None:
        self.delivery_time = DELIVERY_TIME
        self._feed = PushFeed(self.views, self.workflows)

    @activity.defn
    async def deliver_push(self, push: PushRef) -> DeliverPushResult:
        with bound_contextvars(task_id=push.task_id, push_config_id=push.config_id):
            name = f"push {push.config_id}"
            lease = CallLease(self.leases, push.task_id, name, PUSH_LEASE, is_repeatable=True)
            return await lease.work(lambda: self._look(push, lease))

    async def _look(self, push: PushRef, lease: CallLease) -> DeliverPushResult:
        config = await self.configs.get(push.task_id, push.config_id)
        if config:
            return await self._deliver(config, lease)
        if not await self.configs.knows(push.task_id):
            record_delivery("lost")
            _log.error(
                "push config lost: its client gets nothing more of the task unless it sets the config again"
            )
        return DeliverPushResult(done=True)

    async def _deliver(self, config: PushConfig, lease: CallLease) -> DeliverPushResult:
        start = await self.configs.position(config.task_id, config.id)
        news = await self._feed.next(config.task_id, start)
        body = await self._body(config, news.subject) if isinstance(news, News) else None
        if isinstance(news, News) and body and not await self._send(config, lease, body, news.name):
            return DeliverPushResult(delivered=True)  # its config may have been set again
        if news.position != start:
            await self.configs.advance(config, start=start, end=news.position)
        is_over = isinstance(news, Nothing) and news.is_over
        return DeliverPushResult(delivered=isinstance(news, News), done=is_over)

    async def _body(self, config: PushConfig, subject: Subject) -> "NotificationBody | None":
        """Return the body to post, or None if A2A 0.3 cannot express it."""
        from everloop.activities.push.notifications import with_status, write_body, write_legacy_body  # noqa: PLC0415 -- see its head

        if not config.is_legacy:
            return write_body(config, subject)
        match subject:
            case TaskView():
                return write_legacy_body(config, subject)
            case StatusChanged():
                snapshot = await self.views.load(config.task_id)
                return snapshot and write_legacy_body(config, with_status(snapshot.view, subject))
            case _:
                return None

    async def _send(self, config: PushConfig, lease: CallLease, body: "NotificationBody", news: str) -> bool:
        """Post, or give up after the time limit; return whether the webhook still exists."""
        try:
            return await self._post(config, lease, body, news)
        except ApplicationError as failure:
            if failure.type != PUSH_FAILED or self._refused_for(news) < self.delivery_time:
                raise
        record_delivery("left_out")
        _log.error("push notification dropped: its webhook did not accept it in time")
        return True

    def _refused_for(self, news: str) -> timedelta:
        """Return for how long a notification has failed: attempts carry the time of the first failure."""
        now = time.time()
        details = activity.info().heartbeat_details
        if list(details[:1]) == [news]:
            return timedelta(seconds=now - float(details[1]))
        activity.heartbeat(news, now)
        return timedelta()

    async def _post(self, config: PushConfig, lease: CallLease, body: "NotificationBody", news: str) -> bool:
        """Post, and return True if it was accepted, False if the webhook is gone and the config was removed.

        No other attempt can post a later notification meanwhile.

        Raises:
            ApplicationError: `PushFailed`.
            OvertakenError: Another attempt has posted it, or is posting it.
        """
        headers = {
            "Content-Type": body.media_type,
            "User-Agent": "everloop",
            "Webhook-Id": derive_push_event_id(config.task_id, config.id, news),
            "Webhook-Timestamp": str(int(time.time())),
            **_authentication(config),
        }
        await lease.check(ahead=self.webhooks.time_limit)
        try:
            answer = await self.webhooks.post(config.url, body.content, headers, owner=config.owner)
        except UndeliveredError as error:
            outcome = "refused" if isinstance(error, RefusedError) else "no_answer"
            raise _failed(config, outcome, str(error)) from None
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            record_delivery("delivered")
            return True
        if answer.status == HTTPStatus.GONE:
            await self.configs.delete_unchanged(config)
            record_delivery("gone")
            _log.info("push config removed: its webhook is gone")
            return False
        raise _failed(
            config, "not_taken", _problem(answer), pause=retry_after(answer.headers, datetime.now(UTC))
        )


def _authentication(config: PushConfig) -> dict[str, str]:
    headers: dict[str, str] = {}
    if config.token:
        headers["X-A2A-Notification-Token"] = config.token
    if config.scheme and config.credentials:
        headers["Authorization"] = f"{config.scheme} {config.credentials}"
    return headers


def _problem(answer: WebhookResponse) -> str:
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        return f"the webhook answered {answer.status}: redirects are not followed; set the URL it leads to"
    return f"the webhook answered {answer.status}; expected 2xx"


def _failed(
    config: PushConfig, outcome: DeliveryOutcome, problem: str, pause: timedelta | None = None
) -> ApplicationError:
    """Return a retryable failure. The delay is the longer of the webhook's own and our backoff."""
    attempt = activity.info().attempt
    record_delivery(outcome)
    _log.warning(
        "push notification not delivered", reason=problem, host=urlsplit(config.url).hostname, attempt=attempt
    )
    backoff = timedelta(seconds=2 ** min(attempt - 1, _LONGEST_BACKOFF_EXPONENT))
    return ApplicationError(
        problem,
        type=PUSH_FAILED,
        next_retry_delay=pause if pause and pause > backoff else None,
        category=ApplicationErrorCategory.BENIGN,  # otherwise the SDK logs it as well, with a stack
    )
