"""The gateway: A2A over HTTP and gRPC."""

from everloop.runtime.lean import load

load("uvicorn", "watchfiles")  # restarts after each change of a file
