"""Push notification configs as clients send and get them, checked and in our own terms. Pure.

Everything here raises A2A errors that name the field; none repeats a URL, token or credentials.
"""

import base64
import binascii
import re
from collections.abc import Sequence

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from everloop.gateway.requests import check_id
from everloop.stores.push.configs import MAX_CONFIGS, PushConfig
from everloop.workflows.contract.names import derive_push_config_id
from everloop.workflows.contract.tasks import TaskView

MAX_TOKEN_BYTES = 4_096
MAX_CREDENTIALS_BYTES = 8_192
MAX_SCHEME_BYTES = 64

_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""What may stand in a header: visible ASCII, with spaces inside."""

_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""RFC 9110 §11.1: a token."""


def check_config(config: pb.TaskPushNotificationConfig) -> None:
    """Refuse what cannot be sent, whatever its URL.

    Raises:
        InvalidParamsError: the URL is missing, the id is none, or a field is not fit for a header.
    """
    if not config.url:
        raise InvalidParamsError("url is missing; give the https address of a webhook")
    if config.id:
        check_id(config.id, "id")
    _check_header(config.token, "token", MAX_TOKEN_BYTES)
    authentication = config.authentication
    _check_header(authentication.credentials, "authentication.credentials", MAX_CREDENTIALS_BYTES)
    scheme = authentication.scheme
    if authentication.credentials and not scheme:
        raise InvalidParamsError("authentication.scheme is missing; give one, such as Bearer")
    if scheme and not (_SCHEME.fullmatch(scheme) and len(scheme) <= MAX_SCHEME_BYTES):
        raise InvalidParamsError(
            "authentication.scheme is no name of an HTTP authentication scheme; give one, such as Bearer"
        )


def read_config(
    config: pb.TaskPushNotificationConfig, view: TaskView, public_url: str, *, is_legacy: bool
) -> PushConfig:
    """Return a config of a task that has been checked; one without an id gets one that its URL decides."""
    return PushConfig(
        id=config.id or derive_push_config_id(view.task_id, config.url),
        task_id=view.task_id,
        owner=view.owner,
        context_id=view.context_id,
        url=config.url,
        token=config.token,
        has_authentication=config.HasField("authentication"),
        scheme=config.authentication.scheme,
        credentials=config.authentication.credentials,
        is_legacy=is_legacy,
        public_url=public_url,
    )


def show_config(config: PushConfig) -> pb.TaskPushNotificationConfig:
    """Return what the client has set."""
    authentication = pb.AuthenticationInfo(scheme=config.scheme, credentials=config.credentials)
    return pb.TaskPushNotificationConfig(
        task_id=config.task_id,
        id=config.id,
        url=config.url,
        token=config.token,
        authentication=authentication if config.has_authentication else None,
    )


def show_page(
    configs: Sequence[PushConfig], params: pb.ListTaskPushNotificationConfigsRequest
) -> pb.ListTaskPushNotificationConfigsResponse:
    """Return a page of the configs of a task, which come by id; without a size, all of them.

    Raises:
        InvalidParamsError: the size is negative, or the token is not from the page before.
    """
    if params.page_size < 0:
        raise InvalidParamsError(f"pageSize is {params.page_size}; it must be 1 or more")
    after = _read_token(params.page_token)
    rest = [config for config in configs if config.id > after]
    page = rest[: params.page_size or MAX_CONFIGS]
    return pb.ListTaskPushNotificationConfigsResponse(
        configs=map(show_config, page),
        next_page_token=_make_token(page[-1].id) if len(rest) > len(page) else "",
    )


def _check_header(value: str, field: str, most: int) -> None:
    if len(value.encode()) > most:
        raise InvalidParamsError(f"{field} has {len(value.encode())} bytes; it may have {most}")
    if value and not _VISIBLE.fullmatch(value):
        raise InvalidParamsError(f"{field} is not fit for an HTTP header; use visible ASCII characters")


def _make_token(config_id: str) -> str:
    return base64.urlsafe_b64encode(config_id.encode()).decode()


def _read_token(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise InvalidParamsError(
            "pageToken is not one that ListTaskPushNotificationConfigs returned; leave it out to start over"
        ) from None
