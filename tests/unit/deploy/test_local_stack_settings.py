"""Settings of the processes of a local stack."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from everloop.gateway.console.console_routes import DIST
from everloop.local import stack
from everloop.local.demo_model.script import MODEL
from everloop.local.port_numbers import StackPorts
from everloop.local.stack import LOCAL_WEBHOOKS, LocalStack, running_stack
from everloop.local.stack_errors import LocalStackError
from everloop.local.stack_settings import StackSettings

PORTS = StackPorts(
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
    """A stack that other machines reach would call any server on its loopback interface for them."""
    monkeypatch.delenv("EVERLOOP_PUSH_ALLOW", raising=False)
    monkeypatch.setenv("EVERLOOP_HOST", host)
    settings = StackSettings.model_validate({"public_url": url})

    variables = LocalStack(tmp_path, settings, PORTS, {})._variables()

    assert variables["EVERLOOP_PUSH_ALLOW"] == allowed


def test_operators_get_links_to_the_ui_that_the_stack_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unless another address is set, as browsers on other machines need."""
    monkeypatch.delenv("EVERLOOP_TEMPORAL_UI_URL", raising=False)
    stack = LocalStack(tmp_path, StackSettings(), PORTS, {})
    own = stack._variables()["EVERLOOP_TEMPORAL_UI_URL"]
    monkeypatch.setenv("EVERLOOP_TEMPORAL_UI_URL", "https://temporal.example")

    assert own == stack.temporal_ui
    assert stack._variables()["EVERLOOP_TEMPORAL_UI_URL"] == "https://temporal.example"


def test_a_console_that_is_not_served_has_no_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is not built in each clone, and a setting switches it off."""
    assert stack.CONSOLE == DIST / "index.html"
    monkeypatch.setattr(stack, "CONSOLE", tmp_path / "index.html")
    local = LocalStack(tmp_path, StackSettings(), PORTS, {})
    monkeypatch.setenv("EVERLOOP_CONSOLE", "false")
    switched_off = LocalStack(tmp_path, StackSettings(), PORTS, {})

    assert local.console_url == ""
    (tmp_path / "index.html").touch()
    assert local.console_url == f"{local.gateway_url}/console"
    assert switched_off.console_url == ""


def test_what_is_set_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Operators who serve other machines may still allow it."""
    monkeypatch.setenv("EVERLOOP_PUSH_ALLOW", "10.0.0.0/8")
    settings = StackSettings.model_validate({"public_url": "https://agents.example/"})

    assert LocalStack(tmp_path, settings, PORTS, {})._variables()["EVERLOOP_PUSH_ALLOW"] == "10.0.0.0/8"


@pytest.mark.parametrize(
    ("variables", "file", "is_used"),
    [
        ({}, "", True),
        ({"EVERLOOP_MODEL": MODEL}, "", True),
        ({"EVERLOOP_MODEL": "ollama/qwen3"}, "", False),
        ({"OPENAI_API_KEY": "k"}, "", False),
        ({"OPENAI_BASE_URL": "http://p/v1"}, "", False),
        ({"EVERLOOP_MODELS_FILE": "mine.toml"}, "", False),
        ({}, "models.toml", False),
        ({}, "other.toml", True),
    ],
)
def test_the_demo_model_answers_where_no_other_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], file: str, *, is_used: bool
) -> None:
    """Named neither by a variable, nor by a models.toml in the working directory."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EVERLOOP_MODEL", "EVERLOOP_MODELS_FILE"):
        monkeypatch.setenv(name, variables.get(name, ""))
    monkeypatch.chdir(tmp_path)
    if file:
        Path(file).touch()

    assert StackSettings().uses_demo_model == is_used


@pytest.mark.parametrize(
    ("variable", "given", "expected"),
    [("", {}, True), ("mine.py", {}, False), ("", {"EVERLOOP_AGENTS": "a.py"}, False)],
)
def test_it_is_known_that_nobody_named_agents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, given: dict[str, str], *, expected: bool
) -> None:
    """`everloop up` then says that it serves the demo agent, also beside an agent.py."""
    monkeypatch.setenv("EVERLOOP_AGENTS", variable)

    assert LocalStack(tmp_path, StackSettings(), PORTS, given).serves_demo_agent is expected


def test_worker_and_gateway_serve_metrics_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both have one environment. Versions that overlap for a moment in `everloop dev` serve none."""
    monkeypatch.setenv("EVERLOOP_METRICS_ADDRESS", "127.0.0.1:9464")
    stack = LocalStack(tmp_path, StackSettings(), PORTS, {})
    services = [*stack.services(Mock()), *stack.reloadable(3)]

    addresses = [
        (one.environment or {}).get("EVERLOOP_METRICS_ADDRESS") for one in services if one.is_prepared
    ]
    assert addresses == ["127.0.0.1:9465", "127.0.0.1:9464", "", ""]


@pytest.mark.parametrize(("fresh", "wanted"), [(False, {"gateway": 8080}), (True, {})])
async def test_a_stack_wants_the_port_that_documents_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, fresh: bool, wanted: dict[str, int]
) -> None:
    """A stack with a new directory each time, such as a demo, leaves it to others."""

    def choose(_file: Path, _asked: object, _say: object, usual: dict[str, int]) -> StackPorts:
        raise LocalStackError(str(usual))

    monkeypatch.setattr(stack, "choose_ports", choose)

    with pytest.raises(LocalStackError) as asked:
        async with running_stack(tmp_path, StackSettings(), print, {}, fresh=fresh):
            pass

    assert str(asked.value) == str(wanted)
