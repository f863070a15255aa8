"""The table of metrics is what the code has."""

import re
from types import ModuleType

from opentelemetry.metrics import Instrument

from everloop.activities import telemetry as of_workers
from everloop.gateway import gateway_instruments as of_gateways
from everloop.runtime.telemetry import instruments as of_both
from tests.support.deploy.prometheus import ROOT

DOCS = (ROOT / "docs" / "operation/metrics.md").read_text(encoding="utf-8")


def _instruments(module: ModuleType) -> set[str]:
    """Return the OpenTelemetry names of the instruments that a module makes."""
    return {str(vars(each)["_name"]) for each in vars(module).values() if isinstance(each, Instrument)}


def test_every_instrument_is_documented() -> None:
    """Under its OpenTelemetry name; and the table names no other one."""
    documented = set(re.findall(r"^\| `((?:everloop|gen_ai)\.[\w.]+)`", DOCS, re.MULTILINE))
    of_temporal_sdk = {"everloop.iteration.duration"}

    assert documented - of_temporal_sdk == set().union(*map(_instruments, (of_workers, of_gateways, of_both)))
