"""What goes wrong in tests of agents. Each message says what was wrong, and what to do.

TestingError
├── ServersError          Temporal or Valkey are not installed, or do not start
├── AgentsError           these agents cannot be run as they are given
├── ScriptError           what stands in for the model has no reply to what the agent asked
├── TaskError             the task did not come to what the test waited for
├── WorkerProcessError    the worker cannot be a process of its own, or be killed
└── CaseError             a file is no test case, or a result is not as it expects
"""


class TestingError(Exception):
    """A test of an agent cannot go on as it is written; the message says what to change."""

    __test__ = False  # pytest takes classes of such names for tests


class ServersError(TestingError):
    """The servers are not installed, or do not start; the message says which, and what they said."""


class AgentsError(TestingError):
    """These agents cannot be run as they are given; the message says what is missing."""


class ScriptError(TestingError):
    """What stands in for the model has no reply; the message says what the model was asked."""


class TaskError(TestingError):
    """A task did not come to what the test waited for; the message says how it stands."""


class WorkerProcessError(TestingError):
    """The worker cannot be a process of its own, or there is none to kill; the message says what to write."""


class CaseError(TestingError, AssertionError):
    """A file is no test case, or a result is not as the case expects; the message says where they differ."""
