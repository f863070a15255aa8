"""Errors of the demo."""


class DemoError(Exception):
    """The demo did not show what it should; the message is for the person who watches."""
