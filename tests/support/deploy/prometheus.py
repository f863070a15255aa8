"""Reads our metrics, rules and dashboards like Prometheus, and checks them with its own tool."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
ALERTS_TEST = ALERTS.with_name("alerts_test.yaml")
DASHBOARD = ROOT / "deploy" / "grafana" / "everloop.json"
GUIDES = tuple(ROOT / "docs/operation" / page for page in ("runbook.md", "scale-out.md", "sizing.md"))
"""Pages with metrics for operators."""

OF_PROMETHEUS = frozenset({"up", "ALERTS"})
"""Series that Prometheus creates itself."""

APPEAR_LATER = frozenset({"temporal_sticky_cache_miss_total"})
"""Series that appear only after a process evicted a cached workflow and got it again, as a busy machine may.
"""

_NO_METRICS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"|\b(?:by|without|on|ignoring)\s*\([^)]*\)")
_NAME = re.compile(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})
_CODE_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_OF_PROCESSES = re.compile(r"\b(?:everloop|gen_ai|process|temporal)_\w+")


@dataclass(frozen=True)
class Scrape:
    """The samples of one answer of /metrics: name, labels, value."""

    samples: tuple[tuple[str, Mapping[str, str], float], ...]

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self.samples}

    def sum(self, metric: str, **labels: str) -> float:
        """Return the sum over the samples that have these labels."""
        return sum(
            value for name, has, value in self.samples if name == metric and labels.items() <= has.items()
        )


async def scrape(port: int) -> Scrape:
    """Read the metrics of a process of this machine, as Prometheus does."""
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.raise_for_status().text)
    return Scrape(
        tuple((sample.name, sample.labels, sample.value) for family in families for sample in family.samples)
    )


def metrics_of(expression: str) -> set[str]:
    """Return the names of the series in a PromQL expression."""
    rest = _NO_METRICS.sub(" ", expression)
    return set(_NAME.findall(rest)) - _WORDS - OF_PROMETHEUS


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panel_expressions() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel and each of its expressions, with values for Grafana's variables."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression: str = target["expr"]
            yield panel["title"], expression.replace("$__rate_interval", "5m").replace("$agent", ".*")


def guide_expressions() -> list[str]:
    """Return the PromQL of the guides: code spans with a metric, also over two lines."""
    spans = [span for page in GUIDES for span in _CODE_SPAN.findall(page.read_text(encoding="utf-8"))]
    return [span for span in spans if _OF_PROCESSES.search(span)]


def named_metrics() -> set[str]:
    """Return each series of the dashboard, the alerts and the guides."""
    expressions = [expression for _, expression in panel_expressions()]
    expressions += [rule["expr"] for rule in alert_rules()]
    expressions += guide_expressions()
    return {name for expression in expressions for name in metrics_of(expression)}


@cache
def promtool() -> str:
    """Return the path of promtool: installed, or from Debian's package, unpacked once for all test runs.

    The test is skipped if neither is available.
    """
    if found := shutil.which("promtool"):
        return found
    unpacked = Path(tempfile.gettempdir()) / f"everloop-promtool-{os.getuid()}"
    if not unpacked.exists():
        _unpack(unpacked)
    return str(unpacked / "usr" / "bin" / "promtool")


def _unpack(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        made = Path(directory) / "package"
        try:
            _run(["apt-get", "download", "prometheus"], directory)
            (package,) = Path(directory).glob("prometheus_*.deb")
            _run(["dpkg", "-x", str(package), str(made)], directory)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            pytest.skip(f"no promtool here, and Debian's package prometheus cannot be had: {error}")
        try:
            made.rename(target)
        except OSError:
            if not target.exists():  # otherwise another process was first
                raise


def _run(command: list[str], directory: str) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=90)
