"""Push notification configs in the store, and the deliveries that they start."""

import re
from collections.abc import Sequence

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from everloop.gateway.errors import UnavailableNowError
from everloop.gateway.requests.fields import check_id, page_token, read_token
from everloop.runtime.outbound.policy import UnfitUrlError, WebhookPolicy
from everloop.stores.push.configs import MAX_CONFIGS, PushConfig, PushConfigs, TooManyPushConfigsError
from everloop.stores.push.deliveries import Notify, PushSettings
from everloop.workflows.contract.names import derive_push_config_id
from everloop.workflows.contract.tasks import TaskView

# Push notification configs of clients, validated and in our own terms. Pure.
#
# All functions raise A2A errors that name the field. None repeats a URL, token or credentials.

MAX_TOKEN_BYTES = 4_096
MAX_CREDENTIALS_BYTES = 8_192
MAX_SCHEME_BYTES = 64

RETRY_AFTER = 5
"""Seconds after which a client may retry a host whose lookup timed out."""

_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""Valid header values: visible ASCII, with spaces inside."""

_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""RFC 9110 §11.1: a token."""


def check_config(config: pb.TaskPushNotificationConfig) -> None:
    """Validate a config, apart from its host.

    Raises:
        InvalidParamsError: the URL is missing, the id is malformed, or a field is not valid in a header.
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


def show_config(config: PushConfig) -> pb.TaskPushNotificationConfig:
    """Return the fields that the client has set."""
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
    """Return a page of the configs of a task, ordered by id; without a size, all of them.

    Raises:
        InvalidParamsError: the size is negative, or the token is not from the page before.
    """
    if params.page_size < 0:
        raise InvalidParamsError(f"pageSize is {params.page_size}; it must be 1 or more")
    after = read_token(params.page_token, bytes.decode)
    rest = [config for config in configs if config.id > after]
    page = rest[: params.page_size or MAX_CONFIGS]
    token = page_token(page[-1].id.encode()) if len(rest) > len(page) else ""
    return pb.ListTaskPushNotificationConfigsResponse(configs=map(show_config, page), next_page_token=token)


def _check_header(value: str, field: str, most: int) -> None:
    if len(value.encode()) > most:
        raise InvalidParamsError(f"{field} has {len(value.encode())} bytes; it may have {most}")
    if value and not _VISIBLE.fullmatch(value):
        raise InvalidParamsError(f"{field} is not fit for an HTTP header; use visible ASCII characters")


class PushOperations:
    """Operations on push notification configs of visible tasks (A2A 1.0 §3.1.7 to §3.1.10).

    A config is stored, then a delivery reads the task. After a crash in between, the next status of the
    task starts the delivery, or the client's retry.
    """

    def __init__(self, configs: PushConfigs, notify: Notify, policy: WebhookPolicy, public_url: str) -> None:
        self._configs = configs
        self._notify = notify
        self._policy = policy
        self._public_url = public_url

    async def check(self, config: pb.TaskPushNotificationConfig, owner: str, *, task_id: str = "") -> None:
        """Validate a config. The lookup of its host counts toward the owner's limit.

        Runs before a task is started, and before the task of this id gets a message.

        Raises:
            InvalidParamsError: this server does not send to its URL, or a field is invalid.
            TooManyPushConfigsError: the task has too many.
            UnavailableNowError: the lookup of the host timed out.
        """
        check_config(config)
        try:
            await self._policy.check(config.url, owner=owner)
        except UnfitUrlError as error:
            raise InvalidParamsError(f"url {error}") from None
        except TimeoutError:
            raise UnavailableNowError(
                "The host of the webhook was not looked up in time. Send the same request again in a few "
                "seconds.",
                retry_after=RETRY_AFTER,
            ) from None
        if task_id:
            config_ids = await self._configs.config_ids(task_id)
            is_another = (config.id or derive_push_config_id(task_id, config.url)) not in config_ids
            if is_another and len(config_ids) >= MAX_CONFIGS:
                raise TooManyPushConfigsError

    def read(
        self,
        config: pb.TaskPushNotificationConfig,
        task_id: str,
        owner: str,
        *,
        context_id: str,
        is_legacy: bool = False,
    ) -> PushConfig:
        """Return a validated config of a task or a schedule.

        Without an id, its id is derived from its URL.
        """
        return PushConfig(
            id=config.id or derive_push_config_id(task_id, config.url),
            task_id=task_id,
            owner=owner,
            context_id=context_id,
            url=config.url,
            token=config.token,
            has_authentication=config.HasField("authentication"),
            scheme=config.authentication.scheme,
            credentials=config.authentication.credentials,
            is_legacy=is_legacy,
            public_url=self._public_url,
        )

    async def create(
        self, view: TaskView, config: pb.TaskPushNotificationConfig, *, acknowledged: str, is_legacy: bool
    ) -> pb.TaskPushNotificationConfig:
        """Set a config of a task, in place of one of the same id. Repeating it changes nothing.

        The config must have passed `check`.

        `acknowledged`: the stream position up to which the client has received the task; empty: the
        complete task is sent first. It is ignored if a config of the same id and URL is replaced: the
        stored position stays. `is_legacy`: set by a client of A2A 0.3, whose notifications are tasks of
        that version.

        Raises:
            TooManyPushConfigsError: the task has too many.
        """
        requested = self.read(
            config, view.task_id, view.owner, context_id=view.context_id, is_legacy=is_legacy
        )
        await self._configs.put(requested, position=acknowledged)
        await self._notify(requested.task_id, [requested.id])
        return show_config(requested)

    async def get(self, task_id: str, config_id: str) -> pb.TaskPushNotificationConfig:
        """Return a config.

        Raises:
            TaskNotFoundError: the task has no such config.
        """
        config = await self._find(task_id, config_id)
        if config is None:
            raise TaskNotFoundError(f"task {task_id!r} has no push notification config {config_id!r}")
        return show_config(config)

    async def list(
        self, params: pb.ListTaskPushNotificationConfigsRequest
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """Return the configs of a task, page by page."""
        return show_page(await self._configs.list_configs(params.task_id), params)

    async def delete(self, task_id: str, config_id: str) -> None:
        """Delete a config. Missing configs are ignored."""
        await self._configs.delete(task_id, check_id(config_id, "id"))

    async def _find(self, task_id: str, config_id: str) -> PushConfig | None:
        """Return a config; without an id, which A2A 0.3 allows, the only one."""
        if config_id:
            return await self._configs.get(task_id, check_id(config_id, "id"))
        configs = await self._configs.list_configs(task_id)
        if len(configs) > 1:
            raise InvalidParamsError(f"id is missing, and the task has {len(configs)} configs; give one")
        return configs[0] if configs else None


def make_push(
    settings: PushSettings, configs: PushConfigs, notify: Notify, public_url: str
) -> PushOperations | None:
    """Return the push operations, or None if the settings disable notifications."""
    return PushOperations(configs, notify, settings.policy, public_url) if settings.push else None
