"""The agent of the cluster, and the model that it follows."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import accumulate

from everloop import Agent, Limits, ToolContext, artifacts, prompt, request_input, tool, tools
from tests.support.agents.chaos import charge, deposit
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, tool_call

CLERK = "tests.machines.clerk:clerk"
REPORT_BYTES = 150_000
"""More than what an artifact may keep in Redis (EVERLOOP_ARTIFACT_INLINE_BYTES): it goes to S3."""

ANSWER = "blue"
UNKNOWN = "unknown"
SAID = "I will see to it."
PACE = 0.1
"""Seconds between two pieces of the model's text."""

PLANS = {
    "report": ((("r00001c01", "file_report"), ("r00001c02", "deposit")), (("r00004c01", "charge"),)),
    "question": ((("r00001c01", "request_input"),), (("r00003c01", "deposit"),)),
    "errand": ((("r00001c01", "deposit"), ("r00001c02", "charge")),),
}
"""The calls of each reply, with the ids of their places, by the first word of the message."""


def report_of(task_id: str) -> bytes:
    """Return the same bytes for a task every time."""
    return hashlib.shake_128(task_id.encode()).digest(REPORT_BYTES)


@tool(idempotent=True, timeout=timedelta(minutes=2))
async def file_report(context: ToolContext) -> str:
    """Write the report of this task."""
    written = await context.artifacts.write_file(
        "report", _pieces(report_of(context.task_id)), media_type="application/octet-stream", filename="r.bin"
    )
    return f"{written.parts[0].size} bytes"


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 50_000):
        yield content[start : start + 50_000]


class Script:
    """The model: asks for the calls of the plan, then answers with what each came to."""

    def __init__(self, ledger: str) -> None:
        self._arguments = {
            "deposit": {"ledger": ledger},
            "charge": {"ledger": ledger},
            "request_input": {"question": "Which colour?", "kind": "clarification"},
        }

    def reply(self, received: ReceivedRequest) -> Reply:
        """Answer from the conversation alone: the same one always gets the same reply."""
        _, user, *rest = received.conversation
        plan = PLANS[str(user["content"]).split()[0]]
        results = {str(m["tool_call_id"]): str(m["content"]) for m in rest if m["role"] == "tool"}
        for calls, known in zip(plan, accumulate(map(len, plan), initial=0), strict=False):
            if len(results) == known:
                asked = [
                    tool_call(name, json.dumps(self._arguments.get(name, {})), index=index)
                    for index, (_, name) in enumerate(calls)
                ]
                return Reply([*_paced(SAID), *asked])
        return Reply(_paced(json.dumps({call_id: _understood(text) for call_id, text in results.items()})))


def _understood(result: str) -> str:
    return UNKNOWN if "may or may not have taken effect" in result else result


def _paced(text: str) -> list[str | asyncio.Event]:
    """Cut a text in four, with pauses between."""
    size = -(-len(text) // 4)
    loop = asyncio.get_running_loop()
    steps: list[str | asyncio.Event] = []
    for number, start in enumerate(range(0, len(text), size)):
        pause = asyncio.Event()
        loop.call_later(PACE * number, pause.set)
        steps += [pause, text[start : start + size]]
    return steps


clerk = Agent(
    id="clerk",
    name="Clerk",
    description="Keeps a ledger, files reports and asks people.",
    model="scripted",
    plugins=[
        prompt("Follow the script."),
        tools(deposit, charge, file_report),
        artifacts(),
        request_input(),
    ],
    limits=Limits(tool_failures=None),
)
