"""Settings of the local stack from the environment."""

from pathlib import Path

from pydantic import Field, SecretStr, ValidationError

from everloop.local.demo_model.script import MODEL
from everloop.local.stack_errors import StackSettingsError
from everloop.models.catalogue import ModelsSettings
from everloop.runtime.environment import Settings, explain
from everloop.workflows.contract.names import DEFAULT_TASK_QUEUE

PORT = Field(default=None, ge=1, le=65_535)


class StackSettings(Settings):
    """Ports and model of a local stack. A port that is not set is any free one."""

    port: int | None = PORT
    grpc_port: int | None = PORT
    temporal_port: int | None = PORT
    """The port of Temporal. Unset: any free one."""
    temporal_ui_port: int | None = PORT
    """The port of Temporal's web UI. Unset: any free one."""
    redis_port: int | None = PORT
    """The port of Valkey. Unset: any free one."""
    public_url: str = ""
    console: bool = True
    task_queue: str = DEFAULT_TASK_QUEUE
    model: str = ""
    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    openai_base_url: str = Field(default="", validation_alias="OPENAI_BASE_URL")

    models_file: Path | None = None

    @property
    def has_models_file(self) -> bool:
        return ModelsSettings(models_file=self.models_file).file is not None

    @property
    def uses_demo_model(self) -> bool:
        is_set = self.openai_api_key or self.openai_base_url or self.model not in {"", MODEL}
        return not (is_set or self.has_models_file)

    @property
    def requested_ports(self) -> dict[str, tuple[str, int]]:
        """The requested ports: name in `StackPorts` → (variable, port)."""
        ports = {
            "gateway": ("EVERLOOP_PORT", self.port),
            "gateway_grpc": ("EVERLOOP_GRPC_PORT", self.grpc_port),
            "temporal": ("EVERLOOP_TEMPORAL_PORT", self.temporal_port),
            "temporal_ui": ("EVERLOOP_TEMPORAL_UI_PORT", self.temporal_ui_port),
            "redis": ("EVERLOOP_REDIS_PORT", self.redis_port),
        }
        return {name: (variable, port) for name, (variable, port) in ports.items() if port is not None}

    def on_free_ports(self) -> "StackSettings":
        """Return the same settings for a stack that runs beside others."""
        own = [name for name in type(self).model_fields if name.endswith("_port")]
        return self.model_copy(update={**dict.fromkeys(own), "public_url": ""})


def load_settings() -> StackSettings:
    """Read the environment.

    Raises:
        StackSettingsError: a variable has no usable value, or a provider is set without a model.
    """
    try:
        settings = StackSettings()
    except ValidationError as error:
        raise StackSettingsError(explain(error)) from None
    # Workers cannot report this: with a models.toml agents may name their models.
    if not (settings.uses_demo_model or settings.model or settings.has_models_file):
        raise StackSettingsError(
            "OPENAI_API_KEY or OPENAI_BASE_URL is set, but EVERLOOP_MODEL is not; set it to the model to use "
            "(gpt-4.1-mini), or unset both to use the scripted demo model"
        )
    return settings
