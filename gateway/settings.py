"""How a gateway process is set up."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from everloop.runtime.settings import WORDS, Settings
from everloop.stores.artifacts.schedule_files import ScheduleFiles
from everloop.stores.artifacts.store import Artifacts
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.names import DEFAULT_TASK_QUEUE

EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Hosts that listen on every interface, and so are no address a client can use."""

_ORIGIN = re.compile(r"https?://[^/?#@\s,*]+")


class GatewaySettings(Settings):
    """What this gateway listens on and what it accepts (environment, prefix EVERLOOP_).

    `host` (default 127.0.0.1) and `port` (8080) to listen on. `public_url`: where clients reach it, as agent
    cards say; default: host and port. `grpc_port`: where to listen for gRPC too, on the same host (default:
    nowhere). `grpc_url`: where clients reach that, as `host:port`; default: host and gRPC port. `task_queue`:
    the same as the workers'. `split_queues`: calls of models and tools of new tasks wait on queues of their
    own, for workers of their own (default: with the steps of workflows, which is faster).
    `max_message_bytes`: of one message as JSON (default 10,000,000, at most 50,000,000). `max_body_bytes`: of
    one HTTP request (16,000,000); it has to be larger. `blocking_timeout`: seconds that a blocking
    SendMessage waits at most (600); the client then gets the task as it stands.
    `max_streams`, `max_streams_per_owner`: streams and waiting requests that a process holds at a time, in
    all (10,000) and of one owner (1,000).
    `shutdown_grace`: seconds that running requests get at SIGTERM (10). `csv_formulas`: cells
    of CSV stay as they are also where a spreadsheet would calculate them (false). `codec_origins`: where
    Temporal's web UI is, as origins separated by commas; its pages may call the codec endpoint (none).
    `cors_origins`: the same, of pages that may call everything else, or `*` for all (none).
    `fork_models`: patterns of models that forks may choose besides those that agents name (none).
    `console`: whether the console is served at /console (true). An empty variable counts as not set.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    public_url: str = ""
    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    grpc_url: str = ""
    task_queue: str = Field(default=DEFAULT_TASK_QUEUE, min_length=1)
    split_queues: bool = False
    max_message_bytes: int = Field(default=10_000_000, ge=1, le=50_000_000)
    max_body_bytes: int = Field(default=16_000_000, ge=1)
    blocking_timeout: float = Field(default=600, gt=0)
    shutdown_grace: float = Field(default=10, ge=0)
    max_streams: int = Field(default=10_000, ge=1)
    max_streams_per_owner: int = Field(default=1_000, ge=1)
    csv_formulas: bool = False
    codec_origins: Annotated[tuple[str, ...], NoDecode, WORDS] = ()
    cors_origins: Annotated[tuple[str, ...], NoDecode, WORDS] = ()
    fork_models: Annotated[tuple[str, ...], NoDecode, WORDS] = ()
    console: bool = True

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

    @property
    def url(self) -> str:
        """The address in agent cards, with a slash at its end."""
        if self.public_url:
            return self.public_url.rstrip("/") + "/"
        return f"http://{self._reachable_host}:{self.port}/"

    @property
    def grpc_address(self) -> str:
        """Where agent cards say that gRPC is spoken, as `host:port`; empty if it is not."""
        if self.grpc_port is None:
            return ""
        return self.grpc_url or f"{self._reachable_host}:{self.grpc_port}"

    @property
    def _reachable_host(self) -> str:
        host = "localhost" if self.host in EVERYWHERE else self.host
        return f"[{host}]" if ":" in host else host


@dataclass(frozen=True)
class Stores:
    """Where tasks are shown from, where clients' secrets for their tools go, what tasks put out and said.

    `link_seconds` is how long a link lasts at which clients fetch a part from the blob store itself; 0: they
    fetch all from us.
    """

    views: TaskViews
    secrets: Secrets
    artifacts: Artifacts
    transcripts: Transcripts
    link_seconds: int = 0


@dataclass(frozen=True)
class Attachments:
    """What schedules keep for their tasks."""

    files: ScheduleFiles
    webhooks: ScheduleWebhooks
