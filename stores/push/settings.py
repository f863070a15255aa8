"""Whether clients may be notified, and where."""

from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from everloop.runtime.outbound import WebhookPolicy, read_allowance


class PushSettings(BaseSettings):
    """Push notifications: the same for all workers and gateways.

    EVERLOOP_PUSH: `false` refuses them; default true. EVERLOOP_PUSH_ALLOW: where they may go besides public
    https addresses, also by http, separated by commas: `host`, `host:port`, an address, or a network such as
    `10.1.0.0/16`; default nowhere. An empty variable counts as not set.
    """

    model_config = SettingsConfigDict(
        env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    push: bool = True
    push_allow: str = ""

    @field_validator("push_allow")
    @classmethod
    def validate_allowance(cls, text: str) -> str:
        try:
            read_allowance(text)
        except ValueError as error:
            raise ValueError(f"EVERLOOP_PUSH_ALLOW: {error}") from None
        return text

    @property
    def policy(self) -> WebhookPolicy:
        """What these settings allow."""
        return WebhookPolicy(read_allowance(self.push_allow))
