"""Errors of the local stack. Each is shown to a person as its message alone.

LocalStackError
├── StackSettingsError    the environment asks for something that cannot work
├── PortTakenError        a port that was asked for is in use
├── AlreadyRunningError   another stack runs in the same directory
├── StateUnusableError    the directory cannot be made, or not be written to
└── NotReadyError         a process did not start
"""


class LocalStackError(Exception):
    """The local stack cannot run; the message says why and what to do."""


class StackSettingsError(LocalStackError):
    """The environment asks for something that cannot work; the message names the variable."""


class PortTakenError(LocalStackError):
    """A port that was asked for is in use; the message names port and variable."""


class AlreadyRunningError(LocalStackError):
    """Another stack runs in the same directory; the message names its process."""


class StateUnusableError(LocalStackError):
    """The directory cannot be made, or not be written to; the message names it, and why."""


class NotReadyError(LocalStackError):
    """A process did not become ready; the message names it and shows the end of its log."""
