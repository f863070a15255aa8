"""Requests to a scripted model: the part of OpenAI's Chat Completions that it reads.

Unknown fields are ignored, as the real service's older versions would.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, JsonValue, Tag, model_validator


class FunctionCall(BaseModel):
    """Name and JSON text of a call in an earlier reply."""

    name: str
    arguments: str


class AssistantToolCall(BaseModel):
    """One call of an earlier reply."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class TextContent(BaseModel):
    """A text piece of a message."""

    type: Literal["text"]
    text: str


class OtherContent(BaseModel, extra="allow"):
    """A piece other than text, such as an image; its content is ignored."""

    type: str


def _kind_of_content(piece: Any) -> str:  # noqa: ANN401 -- any value from a client
    kind = piece.get("type") if isinstance(piece, dict) else getattr(piece, "type", None)  # pyright: ignore[reportUnknownVariableType] -- as above
    return "text" if kind == "text" else "other"


Piece = Annotated[
    Annotated[TextContent, Tag("text")] | Annotated[OtherContent, Tag("other")],
    Discriminator(_kind_of_content),
]
Content = str | list[Piece]


def _text_of(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(piece.text for piece in content if isinstance(piece, TextContent))


class _Message(BaseModel):
    content: Content

    @property
    def text(self) -> str:
        return _text_of(self.content)


class InstructionMessage(_Message):
    """Instructions of the agent."""

    role: Literal["system", "developer"]


class ChatUserMessage(_Message):
    """Message of the user."""

    role: Literal["user"]


class ChatAssistantMessage(BaseModel):
    """An earlier reply."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: list[AssistantToolCall] = []

    @property
    def text(self) -> str:
        return _text_of(self.content)


class ChatToolMessage(_Message):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str


ChatMessage = Annotated[
    InstructionMessage | ChatUserMessage | ChatAssistantMessage | ChatToolMessage, Discriminator("role")
]


class FunctionDefinition(BaseModel):
    """A tool's function, with the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, JsonValue] = {}


class OfferedTool(BaseModel):
    """A tool that the model may call."""

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
    tool_choice: JsonValue = None
    response_format: Mapping[str, JsonValue] = {}
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _every_call_is_answered(self) -> "ChatRequest":
        """Reject the same requests as OpenAI: calls without their results, results without their calls."""
        waiting: set[str] = set()
        for message in self.messages:
            if isinstance(message, ChatToolMessage):
                if message.tool_call_id not in waiting:
                    raise ValueError(f"no call {message.tool_call_id!r} precedes its tool message")
                waiting.remove(message.tool_call_id)
                continue
            if waiting:
                raise ValueError(f"tool calls without a tool message: {', '.join(sorted(waiting))}")
            if isinstance(message, ChatAssistantMessage):
                waiting = {call.id for call in message.tool_calls}
        if waiting:
            raise ValueError(f"tool calls without a tool message: {', '.join(sorted(waiting))}")
        return self

    @property
    def prompt(self) -> str:
        """The newest message of the user."""
        return next((each.text for each in reversed(self.messages) if isinstance(each, ChatUserMessage)), "")

    @property
    def results(self) -> list[str]:
        """Results of tools since then, oldest first."""
        return [result for _, result in self.returned]

    @property
    def returned(self) -> list[tuple[str, str]]:
        """The same, each with the name of its tool."""
        names: dict[str, str] = {}
        since: list[tuple[str, str]] = []
        for message in self.messages:
            if isinstance(message, ChatUserMessage):
                since = []
            elif isinstance(message, ChatAssistantMessage):
                names.update({call.id: call.function.name for call in message.tool_calls})
            elif isinstance(message, ChatToolMessage):
                since.append((names[message.tool_call_id], message.text))
        return since

    @property
    def tool_names(self) -> frozenset[str]:
        """The tools that the model may call."""
        return frozenset(offered.function.name for offered in self.tools)

    @property
    def forced_tool(self) -> str:
        """The tool that has to be called; empty without one."""
        function = self.tool_choice.get("function") if isinstance(self.tool_choice, dict) else None
        return str(function.get("name", "")) if isinstance(function, dict) else ""

    @property
    def output_schema(self) -> Mapping[str, JsonValue]:
        """The JSON schema of the answer; empty without one."""
        named = self.response_format.get("json_schema")
        schema = named.get("schema") if isinstance(named, dict) else None
        return schema if isinstance(schema, dict) else {}
