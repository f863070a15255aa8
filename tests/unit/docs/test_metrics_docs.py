"""The table of metrics is what the code has."""

import re
from types import ModuleType

from opentelemetry.metrics import Instrument

from everloop.activities import telemetry as of_workers
from everloop.gateway import instruments as of_gateways
from everloop.runtime.telemetry import instruments as of_both
from everloop.workflows.contract.housekeeping import Kind
from tests.support.deploy.prometheus import ROOT, named_metrics

DOCS = (ROOT / "docs" / "operation/metrics.md").read_text(encoding="utf-8")
_SUFFIX = re.compile(r"_(?:bucket|count|sum)$")


def _instruments(module: ModuleType) -> set[str]:
    """Return the OpenTelemetry names of the instruments that a module makes."""
    return {str(vars(each)["_name"]) for each in vars(module).values() if isinstance(each, Instrument)}


def test_every_instrument_is_documented() -> None:
    """Under its OpenTelemetry name; and the table names no other one."""
    documented = set(re.findall(r"^\| `((?:everloop|gen_ai)\.[\w.]+)`", DOCS, re.MULTILINE))
    of_temporal_sdk = {"everloop.iteration.duration"}

    assert documented - of_temporal_sdk == set().union(*map(_instruments, (of_workers, of_gateways, of_both)))


def test_what_the_dashboard_the_alerts_and_the_guides_read_is_documented() -> None:
    """Under its name in Prometheus."""
    read = {_SUFFIX.sub("", name) for name in named_metrics()}

    assert {name for name in read if f"`{name}`" not in DOCS} == set()


def test_every_kind_that_housekeeping_removes_is_documented() -> None:
    """As a value of the metric's label, and as what is removed when."""
    (row,) = re.findall(r"^\| `everloop\.housekeeping\.removed`.*", DOCS, re.MULTILINE)
    removed = (ROOT / "docs" / "operation/housekeeping.md").read_text(encoding="utf-8")

    assert re.findall(r"`([\w-]+)`", row.partition("removed: ")[2]) == list(Kind)
    assert re.findall(r"^\| `([\w-]+)` \|", removed, re.MULTILINE) == list(Kind)
