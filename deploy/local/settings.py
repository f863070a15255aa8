"""What the local stack reads from the environment."""

from pydantic import Field, SecretStr, ValidationError

from everloop.deploy.demo_model.script import MODEL
from everloop.deploy.local.errors import StackSettingsError
from everloop.runtime.settings import Settings, explain
from everloop.workflows.contract.names import DEFAULT_TASK_QUEUE

PORT = Field(default=None, ge=1, le=65_535)


class StackSettings(Settings):
    """Ports and model of a local stack. An empty variable counts as unset.

    Ports (EVERLOOP_PORT is the gateway's): default any free one. EVERLOOP_GRPC_PORT: where the gateway speaks
    gRPC; default nowhere. EVERLOOP_PUBLIC_URL: default the gateway's address on this machine. OPENAI_API_KEY,
    OPENAI_BASE_URL and EVERLOOP_MODEL: all unset means the scripted demo model.
    """

    port: int | None = PORT
    grpc_port: int | None = PORT
    temporal_port: int | None = PORT
    temporal_ui_port: int | None = PORT
    redis_port: int | None = PORT
    public_url: str = ""
    task_queue: str = DEFAULT_TASK_QUEUE
    model: str = ""
    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    openai_base_url: str = Field(default="", validation_alias="OPENAI_BASE_URL")

    @property
    def uses_demo_model(self) -> bool:
        return not self.openai_api_key and not self.openai_base_url

    @property
    def wanted_ports(self) -> dict[str, tuple[str, int]]:
        """The ports asked for: name in `Ports` → (variable, port)."""
        asked = {
            "gateway": ("EVERLOOP_PORT", self.port),
            "gateway_grpc": ("EVERLOOP_GRPC_PORT", self.grpc_port),
            "temporal": ("EVERLOOP_TEMPORAL_PORT", self.temporal_port),
            "temporal_ui": ("EVERLOOP_TEMPORAL_UI_PORT", self.temporal_ui_port),
            "redis": ("EVERLOOP_REDIS_PORT", self.redis_port),
        }
        return {name: (variable, port) for name, (variable, port) in asked.items() if port is not None}

    def on_free_ports(self) -> "StackSettings":
        """Return the same settings for a stack that runs beside others."""
        own = [name for name in type(self).model_fields if name.endswith("_port")]
        return self.model_copy(update={**dict.fromkeys(own), "public_url": ""})


def load_settings() -> StackSettings:
    """Read the environment.

    Raises:
        StackSettingsError: a variable has no usable value, or the model is set up by halves.
    """
    try:
        settings = StackSettings()
    except ValidationError as error:
        raise StackSettingsError(explain(error)) from None
    _check_model(settings)
    return settings


def _check_model(settings: StackSettings) -> None:
    if settings.uses_demo_model:
        if settings.model not in {"", MODEL}:
            raise StackSettingsError(
                f"EVERLOOP_MODEL is {settings.model}, but OPENAI_API_KEY is not set; "
                "set it, or unset EVERLOOP_MODEL to use the scripted demo model"
            )
        return
    if not settings.openai_api_key:
        raise StackSettingsError(
            "OPENAI_BASE_URL is set, but OPENAI_API_KEY is not; set it (to any word if none is needed)"
        )
    if not settings.model:
        raise StackSettingsError(
            "OPENAI_API_KEY is set, but EVERLOOP_MODEL is not; set it to the model to use (gpt-4.1-mini), "
            "or unset OPENAI_API_KEY and OPENAI_BASE_URL to use the scripted demo model"
        )
