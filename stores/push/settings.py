"""Whether clients may be notified, and where."""

from pydantic import field_validator

from everloop.runtime.outbound import WebhookPolicy, read_allowance
from everloop.runtime.settings import Settings


class PushSettings(Settings):
    """Push notifications: the same for all workers and gateways.

    EVERLOOP_PUSH: `false` refuses them; default true. EVERLOOP_PUSH_ALLOW: where they may go besides public
    https addresses, also by http, separated by commas: `host`, `host:port`, an address, or a network such as
    `10.1.0.0/16`; default nowhere. An empty variable counts as not set.
    """

    push: bool = True
    push_allow: str = ""

    @field_validator("push_allow")
    @classmethod
    def validate_allowance(cls, text: str) -> str:
        read_allowance(text)
        return text

    @property
    def policy(self) -> WebhookPolicy:
        """What these settings allow."""
        return WebhookPolicy(read_allowance(self.push_allow))
