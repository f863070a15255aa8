"""Everloop: AI agents that survive anything, as A2A tasks that are durable Temporal workflows."""

__version__ = "0.1.0"
