"""What clients of the demo model send: the part of OpenAI's Chat Completions request that it reads.

Fields that it does not know are ignored, as the real service's older versions would.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, Discriminator, Field, model_validator


class FunctionCall(BaseModel):
    """Name and JSON text of a call that the assistant made."""

    name: str
    arguments: str


class AssistantToolCall(BaseModel):
    """One call of an earlier reply."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class TextContent(BaseModel):
    """A text piece of a message; no other kind is understood."""

    type: Literal["text"]
    text: str


Content = str | list[TextContent]


class InstructionMessage(BaseModel):
    """What the agent is told to be."""

    role: Literal["system", "developer"]
    content: Content


class UserMessage(BaseModel):
    """What the person said."""

    role: Literal["user"]
    content: Content

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(piece.text for piece in self.content)


class AssistantMessage(BaseModel):
    """An earlier reply."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: list[AssistantToolCall] = []


class ToolMessage(BaseModel):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Content

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(piece.text for piece in self.content)


ChatMessage = Annotated[
    InstructionMessage | UserMessage | AssistantMessage | ToolMessage, Discriminator("role")
]


class FunctionDefinition(BaseModel):
    """A function on offer; its schema is not read, the script knows the demo agent's tools."""

    name: str


class OfferedTool(BaseModel):
    """A tool on offer."""

    type: Literal["function"]
    function: FunctionDefinition


class StreamOptions(BaseModel):
    """`include_usage`: one more chunk, with the tokens, before the end."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """One request for a completion."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[OfferedTool] = []
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _every_call_is_answered(self) -> "ChatRequest":
        """Refuse what OpenAI refuses: calls without their results, results without their calls."""
        waiting: set[str] = set()
        for message in self.messages:
            if isinstance(message, ToolMessage):
                if message.tool_call_id not in waiting:
                    raise ValueError(f"no call {message.tool_call_id!r} precedes its tool message")
                waiting.remove(message.tool_call_id)
                continue
            if waiting:
                raise ValueError(f"tool calls without a tool message: {', '.join(sorted(waiting))}")
            if isinstance(message, AssistantMessage):
                waiting = {call.id for call in message.tool_calls}
        if waiting:
            raise ValueError(f"tool calls without a tool message: {', '.join(sorted(waiting))}")
        return self

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(offered.function.name for offered in self.tools)
