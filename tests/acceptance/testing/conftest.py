"""The fixture that whoever has installed Everloop gets with it: a clone is not installed."""

from everloop.testing.plugin import everloop_app

__all__ = ["everloop_app"]
