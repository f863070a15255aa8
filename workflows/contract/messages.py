"""Messages as A2A knows them and as the transcript of a task keeps them.

Source: A2A 1.0 §4.1.4 (Message), §4.1.6 (Part); OpenAI Chat Completions for roles and tool calls.
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from workflows.contract.wire import Wire


class TextPart(Wire):
    """Plain text."""

    kind: Literal["text"] = "text"
    text: str


class DataPart(Wire):
    """Structured content: any JSON value."""

    kind: Literal["data"] = "data"
    data: JsonValue


Part = Annotated[TextPart | DataPart, Field(discriminator="kind")]


class UserMessage(Wire):
    """What the client said. `message_id` is the A2A messageId, unique within its task."""

    role: Literal["user"] = "user"
    message_id: str
    parts: tuple[Part, ...]
    metadata: dict[str, JsonValue] = {}


class AgentMessage(Wire):
    """What the agent tells the client in a status, outside of the answer itself."""

    role: Literal["agent"] = "agent"
    message_id: str
    parts: tuple[Part, ...]
    metadata: dict[str, JsonValue] = {}


Message = Annotated[UserMessage | AgentMessage, Field(discriminator="role")]


class ToolCall(Wire):
    """A call the model asked for. `arguments` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


class Usage(Wire):
    """Tokens, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class AssistantMessage(Wire):
    """One whole reply of the model. Without `tool_calls` its text is an answer.

    `is_shown` is false if subscribers could not be told of its end; the workflow then tells them.
    """

    role: Literal["assistant"] = "assistant"
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    model: str = ""
    finish_reason: str = ""
    usage: Usage = Usage()
    is_shown: bool = True


class ToolMessage(Wire):
    """What one tool call came to.

    `outcome`: "ok"; "error", where `content` says what went wrong; "unknown", where the call was
    started but its end was lost, and it was not run again because it is not idempotent.
    """

    role: Literal["tool"] = "tool"
    call_id: str
    name: str
    content: str
    outcome: Literal["ok", "error", "unknown"] = "ok"


TranscriptMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the text of the text parts, one paragraph each; data parts are left out."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
