"""The tokens of a model call whose provider did not count them."""

import json
from collections.abc import Sequence
from math import ceil

from openai.types.chat import ChatCompletionMessageParam

from everloop.activities.chat_request import ChatRequest
from everloop.workflows.contract.messages import AssistantMessage, Usage

_CHARACTERS = 4
"""Of one token, as OpenAI says of English text."""

FILE_TOKENS = 1000
"""Of a file that the model gets as it is: about a page, or an image of middling size."""


def estimated_usage(request: ChatRequest, reply: AssistantMessage) -> Usage:
    """Return about how many tokens the messages of a request and the reply to it have, reasoning included."""
    written = [reply.text, reply.reasoning]
    for call in reply.tool_calls:
        written += call.name, call.arguments
    return Usage(
        input_tokens=_tokens(_written(request["messages"])) + FILE_TOKENS * _files(request["messages"]),
        output_tokens=_tokens(sum(map(len, written))),
    )


def _written(messages: Sequence[ChatCompletionMessageParam]) -> int:
    """Return how many characters the messages have, files left out."""
    texts = [{**message, "content": _texts(message)} for message in messages]
    return len(json.dumps(texts, ensure_ascii=False))


def _texts(message: ChatCompletionMessageParam) -> object:
    content = message.get("content")
    if not isinstance(content, list):
        return content
    return [part for part in content if part["type"] == "text"]


def _files(messages: Sequence[ChatCompletionMessageParam]) -> int:
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(part["type"] != "text" for part in parts)


def _tokens(characters: int) -> int:
    return ceil(characters / _CHARACTERS)
