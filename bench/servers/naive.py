"""The usual loop on Temporal, as in samples: every call of the model receives all messages."""

from datetime import timedelta
from typing import Any

import orjson
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionFunctionToolParam
from temporalio import activity, workflow

from bench.orders import Order, prose

TIMEOUT = timedelta(seconds=30)
PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {"size": {"type": "integer"}},
    "required": ["size"],
}
PRODUCE: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "produce",
        "description": "Return a text of `size` bytes.",
        "parameters": PARAMETERS,
    },
}

Message = dict[str, Any]

_openai = AsyncOpenAI(max_retries=0)


@activity.defn
async def complete(messages: list[Any]) -> Message:
    """Return the model's whole reply; nothing is streamed."""
    completion = await _openai.chat.completions.create(model="bench", messages=messages, tools=[PRODUCE])
    return completion.choices[0].message.model_dump(exclude_none=True)


@activity.defn
async def produce(arguments: str) -> str:
    """Return a text of `size` bytes."""
    return prose(orjson.loads(arguments)["size"])


@workflow.defn
class Naive:
    """Workflow that calls the model and its tools until it answers; `turns` is the number of its messages."""

    def __init__(self) -> None:
        self._inbox: list[Order] = []

    @workflow.run
    async def run(self, order: Order, turns: int) -> None:
        messages: list[Message] = []
        self._inbox.insert(0, order)
        for _ in range(turns):
            await workflow.wait_condition(lambda: bool(self._inbox))
            messages.append({"role": "user", "content": orjson.dumps(self._inbox.pop(0)).decode()})
            await self._answer(messages)

    async def _answer(self, messages: list[Message]) -> None:
        while True:
            reply = await workflow.execute_activity(complete, messages, start_to_close_timeout=TIMEOUT)
            messages.append(reply)
            if not reply.get("tool_calls"):
                return
            for call in reply["tool_calls"]:
                arguments: str = call["function"]["arguments"]
                result = await workflow.execute_activity(produce, arguments, start_to_close_timeout=TIMEOUT)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    @workflow.signal
    def say(self, order: Order) -> None:
        """Accept one more message."""
        self._inbox.append(order)


WORKFLOW, ACTIVITIES = Naive, [complete, produce]
