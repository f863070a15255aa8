# `everloop.lazy` reads the names here, as type checkers do.

from everloop.local.demo_model.chat_request import ChatRequest as ChatRequest
from everloop.local.demo_model.completion import Call as Call
from everloop.local.demo_model.completion import Refusal as Refusal
from everloop.local.demo_model.completion import Reply as Reply
from everloop.testing.cases import Case as Case
from everloop.testing.cases import export as export
from everloop.testing.errors import AgentsError as AgentsError
from everloop.testing.errors import CaseError as CaseError
from everloop.testing.errors import ScriptError as ScriptError
from everloop.testing.errors import ServersError as ServersError
from everloop.testing.errors import TaskError as TaskError
from everloop.testing.errors import TestingError as TestingError
from everloop.testing.errors import WorkerProcessError as WorkerProcessError
from everloop.testing.model import FunctionModel as FunctionModel
from everloop.testing.model import Script as Script
from everloop.testing.model import StandIn as StandIn
from everloop.testing.model import call as call
from everloop.testing.model import cut as cut
from everloop.testing.model import fail as fail
from everloop.testing.recording import Recording as Recording
from everloop.testing.run import run as run
from everloop.testing.running_app import App as App
from everloop.testing.running_app import StartApp as StartApp
from everloop.testing.running_app import running as running
