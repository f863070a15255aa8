"""Testing agents: `from everloop.testing import Script, call, running`.

Names are loaded at first access: pytest loads the plugin in every project where Everloop is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everloop.local.demo_model.chat_request import ChatRequest
    from everloop.local.demo_model.completion import Call, Refusal, Reply
    from everloop.testing.app import App, StartApp, running
    from everloop.testing.cases import Case, export
    from everloop.testing.errors import (
        AgentsError,
        CaseError,
        ScriptError,
        ServersError,
        TaskError,
        TestingError,
        WorkerProcessError,
    )
    from everloop.testing.model import FunctionModel, Script, StandIn, call, cut, fail
    from everloop.testing.recording import Recording
    from everloop.testing.run import run

__all__ = ["AgentsError", "App", "Call", "Case", "CaseError", "ChatRequest", "FunctionModel", "Recording"]
__all__ += ["Refusal", "Reply", "Script", "ScriptError", "ServersError", "StandIn", "StartApp", "TaskError"]
__all__ += ["TestingError", "WorkerProcessError", "call", "cut", "export", "fail", "run", "running"]

_HOMES = {
    name: module
    for module, names in {
        "everloop.local.demo_model.chat_request": "ChatRequest",
        "everloop.local.demo_model.completion": "Call Refusal Reply",
        "everloop.testing.app": "App StartApp running",
        "everloop.testing.cases": "Case export",
        "everloop.testing.errors": (
            "AgentsError CaseError ScriptError ServersError TaskError TestingError WorkerProcessError"
        ),
        "everloop.testing.model": "FunctionModel Script StandIn call cut fail",
        "everloop.testing.recording": "Recording",
        "everloop.testing.run": "run",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
