"""Settings of a gateway process."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode
from redis.asyncio import Redis

from everloop.runtime.blobs import Blobs
from everloop.runtime.environment import WORDS, Settings
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.schedule_files import ScheduleFiles
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.quotas import Quotas
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.names import DEFAULT_TASK_QUEUE

EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Hosts that listen on every interface, and are no addresses for clients."""

_ORIGIN = re.compile(r"https?://[^/?#@\s,*]+")
_ADDRESS = re.compile(r"https?://[^/?#@\s]+(/[^?#\s]*)?")


class GatewaySettings(Settings):
    """Addresses and limits of this gateway."""

    host: str = "127.0.0.1"
    """Where to listen."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Where to listen. Unless it is set, `everloop dev` and `up` take another free port if 8080 is in use."""
    public_url: str = ""
    """Where clients reach the gateway, as agent cards say. Unset: host and port."""
    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    """Where to speak gRPC too, on the same host. Unset: nowhere. See docs/protocol/grpc.md."""
    grpc_url: str = ""
    """Where clients reach that, as `host:port`. Unset: host and gRPC port."""
    task_queue: str = Field(default=DEFAULT_TASK_QUEUE, min_length=1)
    """The queue of Temporal on which tasks wait. The same for gateways, workers and schedules."""
    split_queues: bool = False
    """`true`: calls of models and tools of new tasks wait on queues of their own, so that each kind can have
    workers of its own. See docs/operation/scale-out.md."""
    max_message_bytes: int = Field(default=10_000_000, ge=1, le=50_000_000)
    """Maximum bytes of one message as JSON."""
    max_body_bytes: int = Field(default=16_000_000, ge=1)
    """Maximum bytes of one HTTP request. It has to be larger than a message."""
    blocking_timeout: float = Field(default=600, gt=0)
    """Maximum seconds that a blocking SendMessage waits. The client then gets the current task."""
    shutdown_grace: float = Field(default=10, ge=0)
    """Seconds that running calls or requests get at SIGTERM. Of a worker 30, with `everloop up` 5."""
    max_streams: int = Field(default=10_000, ge=1)
    """Streams and waiting requests that a process holds at a time."""
    max_streams_per_owner: int = Field(default=1_000, ge=1)
    """The same of one owner."""
    csv_formulas: bool = False
    """`true`: cells of CSV are unchanged even if a spreadsheet would calculate them. See
    docs/agents/artifacts.md."""
    codec_origins: Annotated[tuple[str, ...], NoDecode, WORDS] = ()
    """Origins of Temporal's web UI, separated by commas, whose pages may call the codec endpoint. See
    docs/operation/encryption.md#reading-in-temporals-ui-and-cli."""
    cors_origins: Annotated[tuple[str, ...], NoDecode, WORDS] = ()
    """Origins of web pages, separated by commas, that may call the gateway. `*`: all. See
    docs/operation/security.md#web-pages."""
    fork_models: Annotated[tuple[str, ...], NoDecode, WORDS] = ()
    """Patterns, separated by commas, such as `openai/*`: models that a fork may choose besides those that
    agents name. See docs/protocol/extension.md#forks."""
    console: bool = True
    """Whether the console is served at `/console`. See docs/console.md."""
    temporal_ui_url: str = ""
    """Where browsers find Temporal's web UI. Operators get links to it. `everloop up` sets it. See
    docs/protocol/extension.md#operators."""

    @field_validator("max_body_bytes")
    @classmethod
    def _holds_a_message(cls, size: int, info: ValidationInfo) -> int:
        message = info.data.get("max_message_bytes", 0)
        if size <= message:
            raise ValueError(
                f"{size} is too small for a message; set more than "
                f"EVERLOOP_MAX_MESSAGE_BYTES, which is {message}"
            )
        return size

    @field_validator("codec_origins", "cors_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        is_any = info.field_name == "cors_origins" and origins == ("*",)
        if is_any or all(_ORIGIN.fullmatch(origin) for origin in origins):
            return tuple(origin.lower() for origin in origins)  # as browsers write them
        raise ValueError(
            "expected origins such as https://temporal.example:8233, separated by "
            "commas, each without a path; correct it"
        )

    @field_validator("public_url", "temporal_ui_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if url and not _ADDRESS.fullmatch(url):
            raise ValueError("expected an address such as https://temporal.example:8233; correct it")
        return url.rstrip("/")

    @property
    def url(self) -> str:
        """The address in agent cards, with a slash at its end."""
        if self.public_url:
            return self.public_url.rstrip("/") + "/"
        return f"http://{self._reachable_host}:{self.port}/"

    @property
    def grpc_address(self) -> str:
        """The gRPC address in agent cards, as `host:port`; empty without gRPC."""
        if self.grpc_port is None:
            return ""
        return self.grpc_url or f"{self._reachable_host}:{self.grpc_port}"

    @property
    def _reachable_host(self) -> str:
        host = "localhost" if self.host in EVERYWHERE else self.host
        return f"[{host}]" if ":" in host else host


@dataclass(frozen=True)
class Stores:
    """Stores of task views, of clients' secrets for their tools, of artifacts and of conversations.

    `link_seconds` is the lifetime of a link by which clients fetch a part from the blob store itself;
    0: they fetch all parts from the gateway. `redis` and `blobs` are probed. `conversations`: the
    messages of tasks that Temporal has deleted; None: not stored.
    """

    views: TaskViews
    secrets: Secrets
    artifacts: Artifacts
    transcripts: Transcripts
    link_seconds: int = 0
    redis: Redis | None = None
    blobs: Blobs | None = None
    conversations: Conversations | None = None


@dataclass(frozen=True)
class Attachments:
    """Files, configs and counts of schedules."""

    files: ScheduleFiles
    webhooks: ScheduleWebhooks
    quotas: Quotas
