"""The dashboard and the alert rules, as Prometheus' own tool reads them, and what the runbook says of alerts.

`tests/acceptance/operations/test_metrics.py` compares the metrics they name with those that processes have.
"""

import re
import subprocess
from pathlib import Path

import yaml

from tests.support.deploy.manifests import COMPOSE
from tests.support.deploy.prometheus import (
    ALERTS,
    ALERTS_TEST,
    ROOT,
    alert_rules,
    metrics_of,
    panel_expressions,
    promtool,
)


def _check(*arguments: str | Path) -> None:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_alert_rules() -> None:
    """`promtool check rules` finds nothing wrong."""
    _check("check", "rules", ALERTS)


def test_prometheus_takes_the_configuration_of_compose() -> None:
    """`promtool check config`, but for the files that it names, which containers have."""
    _check("check", "config", "--syntax-only", COMPOSE / "prometheus.yaml")


def test_alerts_fire_for_what_they_are_about() -> None:
    """`promtool test rules`: each alert stays quiet while all is well, and fires otherwise."""
    _check("test", "rules", ALERTS_TEST)


def test_each_alert_has_both_tests() -> None:
    """A rule without a test would be a guess."""
    quiet, *firing = yaml.safe_load(ALERTS_TEST.read_text(encoding="utf-8"))["tests"]
    alerts = {rule["alert"] for rule in alert_rules()}

    assert {each["alertname"] for each in quiet["alert_rule_test"]} == alerts
    assert all(f'"{alert}"' in str(firing) or f"'{alert}'" in str(firing) for alert in alerts)


def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    """Each panel's, as if it were a rule."""
    expressions = list(panel_expressions())
    rules = [{"record": f"panel:{n}", "expr": text} for n, (_, text) in enumerate(expressions)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")

    _check("check", "rules", file)
    assert all(metrics_of(text) for _, text in expressions)


def test_each_alert_has_a_section_of_the_runbook() -> None:
    """Which says what it means, what to look at, and what to do; and no section is left over."""
    text = (ROOT / "docs/operation/runbook.md").read_text(encoding="utf-8")
    alerts = text.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    sections = dict(re.findall(r"### ([\w-]+)\n(.*?)(?=\n### |\Z)", alerts, re.DOTALL))
    named = {str(rule["annotations"]["runbook_url"]) for rule in alert_rules()}

    assert {f"docs/operation/runbook.md#{title}" for title in sections} == named
    for title, body in sections.items():
        assert re.findall(r"^\*\*(\w+)\*\*: ", body, re.MULTILINE) == ["Means", "Look", "Do"], title
