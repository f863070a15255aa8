"""A fake of the port that cleans up."""

from collections.abc import Mapping, Sequence

from temporalio import activity

from everloop.workflows.contract.housekeeping import CleanInput, CleanResult, HousekeepingPort, Kind

Steps = Mapping[Kind, Sequence[CleanResult | Exception]]


class ScriptedHousekeeping(HousekeepingPort):
    """Plays the steps of each kind in order; there is nothing more to do after the last one."""

    def __init__(self, steps: Steps) -> None:
        self._steps = {kind: list(script) for kind, script in steps.items()}
        self.calls: list[tuple[Kind, CleanInput]] = []

    @activity.defn
    async def clean(self, call: CleanInput) -> CleanResult:
        self.calls.append((call.kind, call))
        script = self._steps.get(call.kind)
        step = script.pop(0) if script else CleanResult()
        if isinstance(step, Exception):
            raise step
        return step
