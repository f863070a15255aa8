"""Metrics that this process records from a moment on."""

from functools import cache

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint

Values = dict[tuple[str, ...], float]
"""Values by the labels' values, in the order of the labels' names."""


@cache
def _reader() -> InMemoryMetricReader:
    """Collect the metrics of this process; the provider is global and can be set once only."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    return reader


class Recorded:
    """The growth of each metric since the creation of this object."""

    def __init__(self) -> None:
        self._before = _points()

    def counts(self, name: str) -> Values:
        """Return the growth of a counter, or the number of a histogram's new values."""
        return self._changes(name, 0)

    def sums(self, name: str) -> Values:
        """Return the sum of a histogram's new values."""
        return self._changes(name, 1)

    def gauge(self, name: str) -> Values:
        """Return the present value of a gauge."""
        return {labels: now[0] for labels, now in _points().get(name, {}).items()}

    def _changes(self, name: str, which: int) -> Values:
        before, now = self._before.get(name, {}), _points().get(name, {})
        changes = {labels: point[which] - before.get(labels, (0, 0))[which] for labels, point in now.items()}
        return {labels: change for labels, change in changes.items() if change}


def _points() -> dict[str, dict[tuple[str, ...], tuple[float, float]]]:
    """Return value and value, or count and sum, of each point of each metric."""
    data = _reader().get_metrics_data()
    found: dict[str, dict[tuple[str, ...], tuple[float, float]]] = {}
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    for metric in (metric for scope in scopes for metric in scope.metrics):
        for point in metric.data.data_points:
            labels = tuple(str(value) for _, value in sorted((point.attributes or {}).items()))
            found.setdefault(metric.name, {})[labels] = _numbers(point)
    return found


def _numbers(point: object) -> tuple[float, float]:
    if isinstance(point, HistogramDataPoint):
        return point.count, point.sum
    assert isinstance(point, NumberDataPoint)
    return point.value, point.value
