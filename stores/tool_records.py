"""What is known of tool calls: the record that keeps an effect from happening twice."""

from abc import abstractmethod

from pydantic import JsonValue, TypeAdapter

from everloop.stores.leases import Lease, Leases
from everloop.workflows.contract.calls import ToolReply
from everloop.workflows.contract.wire import HIDE_VALUES

OUTCOME_ADAPTER: TypeAdapter[ToolReply] = TypeAdapter(ToolReply, config=HIDE_VALUES)


class ToolRecords(Leases):
    """(task, call id) → started or finished. Survives the run, so that a reset task reuses outcomes.

    A call that asks people comes in phases, each with a record under an id of its own; the outcome of a phase
    is a result or a question. Beside that, a call keeps one JSON value of its tool's own; a model call keeps
    its reply there until plugins have judged it. Only the attempt that holds a call writes anything of it.
    """

    @abstractmethod
    async def outcome(self, task_id: str, call_id: str) -> ToolReply | None:
        """Return what a call came to; None if there is nothing, or nothing that can be read."""

    @abstractmethod
    async def finish(self, lease: Lease, outcome: ToolReply) -> ToolReply:
        """Record the outcome; the first one recorded stands and is returned.

        Raises:
            NotOursError: the call is another attempt's.
        """

    @abstractmethod
    async def keep(self, lease: Lease, call_id: str, value: JsonValue) -> None:
        """Keep a value of the tool's own for a call, in place of the last one; it goes when the record goes.

        None: keep nothing any more.

        Raises:
            NotOursError: the phase that the lease names is another attempt's.
        """

    @abstractmethod
    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        """Return the value that was kept, None if there is none."""
