"""Composition root of the worker process."""
