"""Run Everloop on this machine: `python -m deploy.local up`."""

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from deploy.demo_model.script import MODEL
from deploy.local.errors import LocalStackError
from deploy.local.settings import load_settings
from deploy.local.signals import run_until_signal
from deploy.local.stack import LocalStack, running_stack
from stores.setting_names import report_unknown

STATE = Path(".everloop")


def main() -> int:
    """Run the stack until Ctrl-C or SIGTERM; return 1 if it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run Temporal, Valkey, a worker and a gateway until Ctrl-C")
    up.add_argument("--directory", type=Path, default=STATE, help="where state is kept (default .everloop)")
    directory: Path = parser.parse_args().directory
    report_unknown("everloop")
    try:
        run_until_signal(_up(directory.absolute()))
    except LocalStackError as error:
        print(f"everloop: {error}", file=sys.stderr)
        return 1
    _say("stopped")
    return 0


async def _up(directory: Path) -> int:
    async with running_stack(directory, load_settings(), _say, {}) as (stack, _):
        _say(_table(stack))
        await asyncio.Event().wait()
    return 0


def _table(stack: LocalStack) -> str:
    scripted = " (a script, no language model: set OPENAI_API_KEY and EVERLOOP_MODEL for a real one)"
    rows = {
        "A2A gateway": stack.gateway_url,
        **({"gRPC": stack.grpc_address} if stack.grpc_address else {}),
        "Agent card": stack.card_url,
        "All agents": stack.catalogue_url,
        "Model": stack.model + (scripted if stack.model == MODEL else ""),
        "Temporal UI": stack.temporal_ui,
        "Temporal": stack.temporal_address,
        "Redis": stack.redis_url,
        "Logs": str(stack.logs),
    }
    lines = [f"  {name:<12}  {value}" for name, value in rows.items()]
    return "\n".join(["", "Everloop is up. Ctrl-C stops it; tasks go on at the next start.", "", *lines, ""])


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a console that went away must not stop the processes
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
