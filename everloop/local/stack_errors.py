"""Errors of the local stack. Only their messages are shown to people.

LocalStackError           a port or the directory is in use, or cannot be used
├── StackSettingsError    a setting cannot work
└── NotReadyError         a process did not start
"""


class LocalStackError(Exception):
    """The local stack cannot run; the message says why and what to do."""


class StackSettingsError(LocalStackError):
    """A setting cannot work; the message names the variable."""


class NotReadyError(LocalStackError):
    """A process did not become ready; the message names it and shows the end of its log."""
