"""Says what tasks are doing while they work."""

from dataclasses import replace
from datetime import timedelta

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.call_lease import MODEL_LEASE, CallLease
from everloop.activities.model_provider import ModelProvider
from everloop.activities.narration import Narration, NarrationTerms
from everloop.activities.task_log import logging_task
from everloop.stores.leases import Leases
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.calls import NarrateInput
from everloop.workflows.contract.ports import NarratorPort

LONGEST_ANSWER = timedelta(seconds=20)
"""Of the model; after that a narration would be too late."""

_TERMS = NarrationTerms()

_log = structlog.get_logger()


class Narrator(NarratorPort):
    """Looks at the stream of a task every few seconds, and lets a model tell what is new in it.

    It never fails: what goes wrong is logged, and costs a narration. What its calls use is not counted as
    used by the task.
    """

    def __init__(
        self, provider: ModelProvider, views: TaskViews, leases: Leases, *, terms: NarrationTerms = _TERMS
    ) -> None:
        self._provider = replace(provider, longest_reply=LONGEST_ANSWER)
        self._views = views
        self._leases = leases
        self._terms = terms

    @activity.defn
    async def narrate(self, call: NarrateInput) -> None:
        with logging_task(call.task):
            try:
                model = self._provider.choose(call.narrator.model or call.model, call.task.agent_id)
            except ApplicationError as error:
                _log.warning("nothing is narrated", failure=error.message)
                return
            name = f"narration {call.task.run_id}"
            lease = CallLease(self._leases, call.task.task_id, name, MODEL_LEASE, is_repeatable=True)
            narration = Narration(self._provider, self._views, call, model, self._terms, lease)
            await narration.run()
