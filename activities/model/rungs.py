"""How a model is held to an answer that has to be data, by the means that its provider has.

Best first: a schema that the provider keeps to, any JSON object, a tool that takes the answer, a prompt. What
a reply then is, looks the same for all of them: its text is the answer.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass, field, replace

from everloop.models.catalogue import RUNGS, ChosenModel
from everloop.models.interface import CallDelta, Delta, Ended, ModelRequest, Opaque, OutputSchema, TextDelta
from everloop.workflows.contract.messages import ListedTool
from everloop.workflows.contract.settings import ModelSettings

FINAL_ANSWER = "final_answer"
"""The tool that takes the answer."""

_BY = {"response_format": ("json_schema", "json_object"), "tool": ("tool",), "prompt": ("prompt",)}


@dataclass(frozen=True)
class Rungs:
    """Which means to try, and those that providers have refused since this process began."""

    refused: set[tuple[str, bool, str]] = field(default_factory=set[tuple[str, bool, str]])

    def of(self, chosen: ChosenModel, request: ModelRequest) -> Sequence[ModelRequest]:
        """Return the request by each means that is left, best first; as it is where any answer will do."""
        if not request.output:
            return (request,)
        wanted = _BY.get(request.settings.output_by or "auto")
        known = wanted or chosen.rungs or RUNGS
        left = [by for by in known if (chosen.name, bool(request.tools), by) not in self.refused]
        return [_asked_by(by, request, request.output) for by in left or known[-1:]]

    def refuse(self, chosen: ChosenModel, request: ModelRequest, sent: ModelRequest) -> None:
        """Note that the provider does not take a request by these means; with tools it may take fewer."""
        if sent.output:
            self.refused.add((chosen.name, bool(request.tools), sent.output.by))


def _asked_by(by: str, request: ModelRequest, output: OutputSchema) -> ModelRequest:
    asked = replace(request, output=replace(output, by=by))
    if by == "tool":
        offered = ListedTool(
            name=FINAL_ANSWER,
            description="Give your answer to the user: call this once, as the last thing you do.",
            parameters={**output.schema},
        )
        forced = request.settings if request.tools else ModelSettings(tool_choice="required")
        return replace(asked, tools=(*request.tools, offered), settings=forced.over(request.settings))
    if by == "json_schema":
        return asked
    schema = json.dumps(output.schema, ensure_ascii=False)
    told = f"Your answer has to be JSON that fits this schema, and nothing else:\n{schema}"
    return replace(asked, messages=(*request.messages, {"role": "system", "content": told}))


async def answer_of_tool(deltas: AsyncIterable[Delta]) -> AsyncGenerator[Delta]:
    """Yield a reply in which the call of `FINAL_ANSWER` is the text, and the other calls are the calls."""
    texts: list[TextDelta] = []
    answers: dict[int, list[str]] = {}
    numbers: dict[int, int] = {}
    async for delta in deltas:
        match delta:
            case TextDelta():
                texts.append(delta)
            case CallDelta(call, name) if call in answers or (call not in numbers and name == FINAL_ANSWER):
                answers.setdefault(call, []).append(delta.arguments)
            case CallDelta(call):
                yield replace(delta, call=numbers.setdefault(call, len(numbers)))
            case Ended():
                first = next(iter(answers.values()), None)
                yield TextDelta("".join(first if first is not None else (text.text for text in texts)))
                yield _ended(delta, answers, numbers)
            case _:
                yield delta


def _ended(ended: Ended, answers: dict[int, list[str]], numbers: dict[int, int]) -> Ended:
    calls = {numbers[call]: kept for call, kept in ended.opaque.calls.items() if call in numbers}
    is_answer = bool(answers) and not numbers and ended.reason == "tool_calls"
    opaque = Opaque(ended.opaque.fields, calls, ended.opaque.reasoning_field)
    return replace(ended, opaque=opaque, reason="stop" if is_answer else ended.reason)
