"""The gateway: A2A over HTTP and gRPC."""
