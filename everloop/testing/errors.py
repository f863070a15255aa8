"""Errors in tests of agents. Each message says what was wrong, and the remedy.

TestingError
├── ServersError          Temporal or Valkey are not installed, or do not start
├── AgentsError           the agents cannot run
├── ScriptError           the stand-in for the model has no reply to a request
├── TaskError             the task did not reach the state that the test waited for
├── WorkerProcessError    the worker cannot run in its own process, or be killed
└── CaseError             a file is not a test case, or a result differs from it
"""


class TestingError(Exception):
    """A test of an agent cannot continue; the message says what to change."""

    __test__ = False  # pytest takes classes of such names for tests


class ServersError(TestingError):
    """The servers are not installed, or do not start; the message has their output."""


class AgentsError(TestingError):
    """The agents cannot run; the message says what is missing."""


class ScriptError(TestingError):
    """The stand-in for the model has no reply; the message has the request."""


class TaskError(TestingError):
    """A task did not reach the state that the test waited for; the message has its state."""


class WorkerProcessError(TestingError):
    """The worker cannot run in its own process, or there is none to kill; the message has the remedy."""


class CaseError(TestingError, AssertionError):
    """A file is not a test case, or a result differs from it; the message says where."""
