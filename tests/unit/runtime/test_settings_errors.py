"""Errors of wrong settings."""

import pytest
from pydantic import ValidationError

from everloop.gateway.settings import GatewaySettings
from everloop.runtime.environment import Settings, explain, unknown_settings
from everloop.runtime.redis import StoreSettings
from everloop.runtime.telemetry.telemetry_settings import TelemetrySettings

NO_NUMBER = "Input should be a valid integer, unable to parse string as an integer"
TOO_SMALL = "Input should be greater than or equal to 1"
LEVELS = "Input should be 'debug', 'info', 'warning', 'error' or 'critical'"
NO_PAGE = "expected an address such as https://temporal.example:8233; correct it"
NO_REDIS = "expected redis://, rediss:// or unix://; correct it"


@pytest.mark.parametrize(
    ("settings", "values", "line"),
    [
        (
            GatewaySettings,
            {"port": "secret", "max_body_bytes": 0},
            f"EVERLOOP_PORT: {NO_NUMBER}; EVERLOOP_MAX_BODY_BYTES: {TOO_SMALL}",
        ),
        (GatewaySettings, {"temporal_ui_url": "javascript:secret"}, f"EVERLOOP_TEMPORAL_UI_URL: {NO_PAGE}"),
        (TelemetrySettings, {"EVERLOOP_LOG_LEVEL": "secret"}, f"EVERLOOP_LOG_LEVEL: {LEVELS}"),
        (StoreSettings, {"redis_url": "secret"}, f"EVERLOOP_REDIS_URL: {NO_REDIS}"),
    ],
)
def test_each_wrong_variable_is_named(
    settings: type[Settings], values: dict[str, str | int], line: str
) -> None:
    """One line with the names of the environment variables; each name once, never a value."""
    with pytest.raises(ValidationError) as caught:
        settings.model_validate(values)

    assert explain(caught.value) == line


def test_a_log_level_may_be_written_in_any_case() -> None:
    """Operators write INFO as often as info."""
    assert TelemetrySettings.model_validate({"EVERLOOP_LOG_LEVEL": "Warning"}).log_level == "warning"


def test_a_misspelt_setting_is_told_with_the_nearest() -> None:
    """Pydantic ignores unknown variables; values are not shown."""
    told = unknown_settings(["EVERLOOP_MODL", "EVERLOOP_PORT", "everloop_host", "EVERLOOP_XYZ", "HOME"])
    assert told == [
        "EVERLOOP_MODL is set, but no setting is called so: it changes nothing; did you mean EVERLOOP_MODEL?",
        "EVERLOOP_XYZ is set, but no setting is called so: it changes nothing; docs/settings.md lists them",
    ]
