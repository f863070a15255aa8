"""Tasks whose histories are kept: each takes another way through the workflow code."""

from collections.abc import Callable

from temporalio.exceptions import ApplicationError

from tests.support.fake_ports import FakePorts, Script, ScriptedModel, answer, asks
from workflows.contract import failures
from workflows.contract.tasks import AgentSpec

AGENT = AgentSpec(id="agent", max_iterations=3)


def _fail(failure_type: str) -> ApplicationError:
    return ApplicationError("scripted failure", type=failure_type, non_retryable=True)


def _plays(*script: Script) -> Callable[[], FakePorts]:
    return lambda: FakePorts(ScriptedModel(*script))


SCENARIOS: dict[str, Callable[[], FakePorts]] = {
    "answer": _plays(answer("Hi.")),
    "tools": _plays(asks(("a", "x"), ("b", "y"), text="Let me look."), asks(("c", "x")), answer("done")),
    "transcript_lost": _plays(asks(("a", "x")), _fail(failures.TRANSCRIPT_MISSING), answer("done")),
    "model_refused": _plays(_fail(failures.MODEL_REFUSED)),
    "iteration_limit": _plays(*(asks((f"c{n}", "x")) for n in range(3))),
}
