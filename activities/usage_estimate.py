"""The tokens of a model call whose provider did not count them."""

import json
from math import ceil

from activities.chat_request import ChatRequest
from workflows.contract.messages import AssistantMessage, Usage

_CHARACTERS = 4
"""Of one token, as OpenAI says of English text."""


def estimated_usage(request: ChatRequest, reply: AssistantMessage) -> Usage:
    """Return about how many tokens the messages of a request and the reply to it have, reasoning included."""
    written = [reply.text, reply.reasoning]
    for call in reply.tool_calls:
        written += call.name, call.arguments
    return Usage(
        input_tokens=_tokens(len(json.dumps(request["messages"], ensure_ascii=False))),
        output_tokens=_tokens(sum(map(len, written))),
    )


def _tokens(characters: int) -> int:
    return ceil(characters / _CHARACTERS)
