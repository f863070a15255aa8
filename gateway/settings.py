"""How a gateway process is set up."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from workflows.contract.names import DEFAULT_TASK_QUEUE

EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
"""Hosts that listen on every interface, and so are no address a client can use."""


class GatewaySettings(BaseSettings):
    """What this gateway listens on and what it accepts (environment, prefix EVERLOOP_).

    `host` (default 127.0.0.1) and `port` (8080) to listen on. `public_url`: where clients reach it, as agent
    cards say; default: host and port. `task_queue`: the same as the workers'. `max_message_bytes`: of one
    message as JSON (default 1,000,000; Temporal takes 2 MB). `max_body_bytes`: of one HTTP request
    (8,000,000). `blocking_timeout`: seconds that a blocking SendMessage waits at most (600); the client then
    gets the task as it stands. `shutdown_grace`: seconds that running requests get at SIGTERM (10).
    """

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    public_url: str = ""
    task_queue: str = DEFAULT_TASK_QUEUE
    max_message_bytes: int = Field(default=1_000_000, ge=1, le=1_500_000)
    max_body_bytes: int = Field(default=8_000_000, ge=1)
    blocking_timeout: float = Field(default=600, gt=0)
    shutdown_grace: float = Field(default=10, ge=0)

    @property
    def url(self) -> str:
        """The address in agent cards, with a slash at its end."""
        if self.public_url:
            return self.public_url.rstrip("/") + "/"
        host = "localhost" if self.host in EVERYWHERE else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
