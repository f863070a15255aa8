"""What the processes of a local stack are told."""

from pathlib import Path

import pytest

from everloop.deploy.local.ports import Ports
from everloop.deploy.local.settings import StackSettings
from everloop.deploy.local.stack import LOCAL_WEBHOOKS, LocalStack

PORTS = Ports(
    gateway=1, temporal=2, temporal_ui=3, temporal_http=4, temporal_metrics=5, redis=6, demo_model=7
)


@pytest.mark.parametrize(
    ("url", "host", "allowed"),
    [
        ("", "", LOCAL_WEBHOOKS),
        ("http://localhost:8080/", "127.0.0.1", LOCAL_WEBHOOKS),
        ("https://agents.example/", "", ""),
        ("", "0.0.0.0", ""),
    ],
)
def test_only_who_is_on_this_machine_may_name_webhooks_on_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, host: str, allowed: str
) -> None:
    """A stack that others reach would call whatever listens on its loopback interface for them."""
    monkeypatch.delenv("EVERLOOP_PUSH_ALLOW", raising=False)
    monkeypatch.setenv("EVERLOOP_HOST", host)
    settings = StackSettings.model_validate({"public_url": url})

    variables = LocalStack(tmp_path, settings, PORTS, {})._variables()

    assert variables["EVERLOOP_PUSH_ALLOW"] == allowed


def test_what_is_set_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever serves others may allow it all the same."""
    monkeypatch.setenv("EVERLOOP_PUSH_ALLOW", "10.0.0.0/8")
    settings = StackSettings.model_validate({"public_url": "https://agents.example/"})

    assert LocalStack(tmp_path, settings, PORTS, {})._variables()["EVERLOOP_PUSH_ALLOW"] == "10.0.0.0/8"
