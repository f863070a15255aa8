"""Serve the demo model: `python -m everloop.local.demo_model --port N`."""

import argparse
import sys

import uvicorn

from everloop.local.demo_model.model_server import build_app
from everloop.local.demo_model.script import MODEL, answer

HOST = "127.0.0.1"
DEFAULT_DELAY = 0.015


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m everloop.local.demo_model", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="TCP port on the loopback interface")
    parser.add_argument(
        "--delay", type=float, default=DEFAULT_DELAY, help="seconds before each chunk (default 0.015)"
    )
    arguments = parser.parse_args()
    print(
        f"{MODEL} is a scripted stand-in for a language model; "
        f"OpenAI's API is at http://{HOST}:{arguments.port}/v1",
        flush=True,
    )
    app = build_app(answer, MODEL, delay=arguments.delay)
    uvicorn.run(app, host=HOST, port=arguments.port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    sys.exit(main())
