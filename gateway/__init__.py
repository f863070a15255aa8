"""The gateway: A2A over HTTP and gRPC."""

from everloop.runtime.lean import load

load("a2a.server.request_handlers", "grpc")  # the binding has it from elsewhere, where it is wanted (9 MiB)
load("uvicorn", "watchfiles")  # restarts after each change of a file
