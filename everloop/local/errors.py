"""Errors of the local stack. Each is shown to a person as its message alone.

LocalStackError           a port or the directory is taken, or cannot be used
├── StackSettingsError    the environment asks for something that cannot work
└── NotReadyError         a process did not start
"""


class LocalStackError(Exception):
    """The local stack cannot run; the message says why and what to do."""


class StackSettingsError(LocalStackError):
    """The environment asks for something that cannot work; the message names the variable."""


class NotReadyError(LocalStackError):
    """A process did not become ready; the message names it and shows the end of its log."""
