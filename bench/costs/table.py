"""Costs of tasks as a table: a column for each shape of task."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from bench.costs.history import Weight
from bench.costs.stores import StoreUse


@dataclass(frozen=True)
class Cost:
    """Mean cost of a task of a shape; processor time in milliseconds."""

    weight: Weight
    heartbeats: float
    stores: StoreUse
    worker_ms: float
    gateway_ms: float

    @property
    def rows(self) -> dict[str, str]:
        """Rows of the table."""
        weight, stores = self.weight, self.stores
        heartbeats = round(self.heartbeats)
        return {
            "history events": f"{weight.events}",
            "history bytes": f"{weight.history_bytes}",
            "state transitions": f"{weight.state_transitions}",
            "actions": f"{weight.actions.total() + heartbeats}",
            **{f"· {kind}": f"{count}" for kind, count in sorted(weight.actions.items())},
            "· heartbeats": f"{heartbeats}",
            "Redis commands": f"{stores.commands:.0f}",
            "· scripts": f"{stores.scripts:.0f}",
            "Redis CPU, ms": f"{stores.redis_ms:.1f}",
            "Redis keys": f"{stores.keys:.0f}",
            "Redis bytes": f"{stores.redis_bytes:.0f}",
            "Redis byte-days": f"{stores.byte_days:.0f}",
            **{
                f"· {kind}": f"{size:.0f}, {stores.kinds_byte_days[kind] / size:.0f} d"
                for kind, size in sorted(stores.kinds.items())
                if size >= 1
            },
            "blobs put": f"{stores.blobs:.0f}",
            "blob bytes": f"{stores.blob_bytes:.0f}",
            "worker CPU, ms": f"{self.worker_ms:.0f}",
            "gateway CPU, ms": f"{self.gateway_ms:.0f}",
        }


def cost_table(costs: Mapping[str, Cost]) -> Table:
    """Return the table; missing kinds of action are left empty."""
    table = Table("one task")
    for name in costs:
        table.add_column(name, justify="right")
    shown = [cost.rows for cost in costs.values()]
    titles = dict.fromkeys(title for rows in shown for title in rows)
    for title in titles:
        table.add_row(title, *(rows.get(title, "") for rows in shown))
    return table
