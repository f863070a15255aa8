"""Turns an agent and a transcript into a model request, with messages in the form of Chat Completions."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile

from pydantic import JsonValue
from pydantic_core import from_json

from everloop.activities.hook_runner import PluginFailedError, in_time
from everloop.activities.model.model_files import (
    Content,
    ReadFiles,
    describe,
    file_content,
    files_of,
    is_read_on,
    text_content,
)
from everloop.agents.agent import Agent
from everloop.agents.artifact_tools import reading_tools
from everloop.agents.hooks import HookContext
from everloop.agents.tool import listed
from everloop.agents.tool_signature import as_tool_name
from everloop.models.catalogue import ChosenModel
from everloop.models.interface import ModelRequest, PromptTooLongError
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    FilePart,
    ListedTool,
    Part,
    SpokenMessage,
    SummaryMessage,
    TaskReference,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    UserMessage,
)
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskRef

Sent = dict[str, JsonValue]
"""A message in the form of Chat Completions."""

# The system prompts of one model call.

_METHOD = "its system prompt"


@dataclass(frozen=True)
class Prompts:
    """Prompts before the history, as paragraphs of one message, and after it, each as a message."""

    before: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])


async def write_prompts(agent: Agent, context: HookContext) -> Prompts:
    """Return the prompts in the order of the plugins, without empty ones.

    Raises:
        PluginFailedError: A prompt function raised, took too long, or did not return text.
    """
    prompts = Prompts()
    for plugin in agent.ordered_plugins:
        for prompt in plugin.prompts:
            text: object = prompt.text
            if callable(prompt.text):
                text = await in_time(plugin, _METHOD, partial(prompt.text, context))
            if not isinstance(text, str):
                raise PluginFailedError(plugin.name, _METHOD, f"it is a {type(text).__name__}, not a text")
            if text:
                (prompts.before if prompt.place == "before" else prompts.after).append(text)
    return prompts


_NO_PROMPTS = Prompts()
_NO_FILES = ReadFiles()


def build_request(
    model: str,
    agent: Agent,
    transcript: Sequence[TranscriptMessage],
    *,
    files: ReadFiles = _NO_FILES,
    prompts: Prompts = _NO_PROMPTS,
) -> ModelRequest:
    """Return the request. `files` are the contents of the files in the transcript."""
    head, notes, rest = _uncovered(transcript)
    before = ["\n\n".join(prompts.before)] if prompts.before else []
    messages = (
        *map(_system, before),
        *_messages(head, files),
        *notes,
        *_messages(rest, files),
        *map(_system, prompts.after),
    )
    return ModelRequest(model, messages, _offered_tools(agent, transcript, files))


def _system(text: str) -> Sent:
    return {"role": "system", "content": text}


def made_to_call(request: ModelRequest, tool: str) -> ModelRequest:
    """Return the request for a model that has to call a tool."""
    # Some providers refuse a conversation that ends with a reply, or let the model continue that reply.
    instruction = {"role": "user", "content": f"[Now call {tool}, with the result of your work.]"}
    settings = replace(request.settings, tool_choice=tool, parallel_tool_calls=False)
    return replace(request, messages=(*request.messages, instruction), settings=settings)


def only_create_task(request: ModelRequest, agent: Agent) -> ModelRequest:
    """Return the request for a model that can only create a task or answer."""
    settings = replace(request.settings, tool_choice=None)
    return replace(request, tools=(_create_task(agent),), settings=settings)


def without_tools(request: ModelRequest, last: str) -> ModelRequest:
    """Return the request for a model that has to answer now, because of `last`: the name of a limit."""
    # Not `tool_choice="none"`: models call the tools in a request all the same, and Groq then refuses the
    # reply.
    end = "There are no tools any more: answer now with what you have, and say what is missing."
    instruction = {"role": "user", "content": f"[This is the last call: {last}. {end}]"}
    settings = replace(request.settings, tool_choice=None, parallel_tool_calls=None, provider_tools=())
    return replace(request, messages=(*request.messages, instruction), tools=(), settings=settings)


def until_called(settings: ModelSettings, transcript: Sequence[TranscriptMessage]) -> ModelSettings:
    """Return settings without a required tool call if there was one since the user's last message."""
    if settings.tool_choice in (None, "auto", "none"):
        return settings
    for message in reversed(transcript):
        if isinstance(message, ToolMessage):
            return replace(settings, tool_choice="auto")  # None would leave it to the model's own settings
        if isinstance(message, UserMessage) and message.message_id:  # a note to the model has no id
            break
    return settings


# Hints with which a provider finds the beginning of a prompt in its cache.


def cache_key(task: TaskRef) -> str:
    """Return the cache key that all calls of an agent in one conversation share, and no others."""
    of_call = f"{context_key(task.owner, task.context_id)}/{task.agent_id}"
    return hashlib.sha256(of_call.encode()).hexdigest()[:32]


def with_cache_hints(request: ModelRequest, chosen: ChosenModel, key: str) -> ModelRequest:
    """Return the request with its provider's cache hints, unless settings disable them.

    "key": the same `prompt_cache_key` for prompts with the same beginning. "breakpoints": marks at the end of
    the text that the next prompt repeats: after the system prompt, and after the last two messages that are
    not replies. Source: OpenAI and OpenRouter, prompt caching.
    """
    settings = request.settings
    if settings.over(chosen.settings).cache is False:
        return request
    match chosen.provider.cache:
        case "key":
            body = {"prompt_cache_key": key, **(settings.extra_body or {})}
            return replace(request, settings=replace(settings, extra_body=body))
        case "breakpoints":
            messages, input_roles = request.messages, ("user", "tool")
            last = [place for place, each in enumerate(messages) if each["role"] in input_roles][-2:]
            marked = {*last, *([0] if messages and messages[0]["role"] == "system" else [])}
            given = (_marked(each) if place in marked else each for place, each in enumerate(messages))
            return replace(request, messages=tuple(given))
        case _:
            return request


def _marked(message: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return a message with a breakpoint at its last text. A message without a text is unchanged."""
    content = message.get("content")
    text: list[JsonValue] = [{"type": "text", "text": content}]
    parts = [*content] if isinstance(content, list) else text
    for place, part in reversed([*enumerate(parts)]):
        if isinstance(part, dict) and part.get("text"):
            mark: JsonValue = {"type": "ephemeral"}
            parts[place] = {**part, "cache_control": mark}
            return {**message, "content": parts}
    return message


# The transcript in the form for the provider.


def last_summary(transcript: Sequence[TranscriptMessage]) -> SummaryMessage | None:
    """Return the current summary, which may follow messages that it does not cover."""
    return next((message for message in reversed(transcript) if isinstance(message, SummaryMessage)), None)


def user_text(message: UserMessage) -> str:
    """Return the message of the user: texts unchanged, data as JSON, a line for each file."""
    return "\n\n".join(_text(part) for part in message.parts)


def sent_messages(transcript: Sequence[TranscriptMessage]) -> list[SpokenMessage]:
    """Return the messages that the provider gets unchanged: those without a summary."""
    head, _, rest = _uncovered(transcript)
    return [*head, *rest]


def spoken(messages: Iterable[TranscriptMessage]) -> list[SpokenMessage]:
    """Return the messages of the conversation itself."""
    return [message for message in messages if isinstance(message, SpokenMessage)]


def _uncovered(
    transcript: Sequence[TranscriptMessage],
) -> tuple[list[SpokenMessage], list[Sent], list[SpokenMessage]]:
    """Return the first message, the note in place of the covered ones, and the other uncovered messages.

    Without a summary all messages are uncovered, and there is no note.
    """
    summary = last_summary(transcript)
    if summary is None:
        return [], [], spoken(transcript)
    first = summary.first
    covered = spoken([*transcript[:first], *transcript[first + 1 : summary.end]])
    rest = spoken(transcript[max(summary.end, first + 1) :])
    # Providers refuse a result without its call. A range that the workflow covers never ends between the two.
    rest = dropwhile(lambda message: isinstance(message, ToolMessage), rest)
    note = f"[{len(covered)} earlier messages were left out]"
    if summary.text:
        note = f"[Summary of the conversation so far]\n{summary.text}"
    return spoken(transcript[first : first + 1]), [{"role": "user", "content": note}], list(rest)


def _messages(messages: Iterable[SpokenMessage], files: ReadFiles) -> Iterable[Sent]:
    """Yield the messages without empty replies, which several providers refuse.

    Files of results follow the last result of their reply: providers allow nothing between results.
    """
    shown: list[FilePart] = []
    for message in _without_repetitions(messages):
        if shown and not isinstance(message, ToolMessage):
            yield _files_message(shown, files)
            shown = []
        shown += message.files if isinstance(message, ToolMessage) else ()
        is_reply = isinstance(message, AssistantMessage)
        if not (is_reply and not message.text.strip() and not message.tool_calls):
            yield _message(message, files)
    if shown:
        yield _files_message(shown, files)


def _without_repetitions(messages: Iterable[SpokenMessage]) -> Iterable[SpokenMessage]:
    """Yield the messages; references leave out text that was said before them."""
    replies, referred = list[AssistantMessage](), set[tuple[str, str]]()
    for message in messages:
        if isinstance(message, UserMessage) and message.references:
            said = {"", *(_plain(text) for each in replies for text in (each.text, each.closing))}
            new = {(each.task_id, each.state): _unsaid(each, said) for each in message.references}
            unsaid = tuple(each for key, each in new.items() if key not in referred)
            referred |= new.keys()
            yield message.model_copy(update={"references": unsaid})
        else:
            replies += [message] if isinstance(message, AssistantMessage) else []
            yield message


def _unsaid(reference: TaskReference, said: Collection[str]) -> TaskReference:
    return reference.model_copy(update={"answer": ""}) if _plain(reference.answer) in said else reference


def _plain(text: str) -> str:
    """Return a text for comparison: without outer spaces, and JSON in one form."""
    try:
        return json.dumps(from_json(text), sort_keys=True)
    except ValueError:
        return text.strip()


def _files_message(parts: Sequence[FilePart], files: ReadFiles) -> Sent:
    """Return the message that shows files of results; providers do not accept them within a result."""
    given = [text_content("[Files of the results above]")]
    for part in parts:
        given += file_content(part, files)
    return {"role": "user", "content": _as_content(given)}


def _message(message: SpokenMessage, files: ReadFiles) -> Sent:
    if isinstance(message, UserMessage):
        return {"role": "user", "content": _user_content(message, files)}
    if isinstance(message, AssistantMessage):
        return _assistant_message(message)
    return {"role": "tool", "tool_call_id": message.call_id, "content": _filled(message.content)}


def _user_content(message: UserMessage, files: ReadFiles) -> JsonValue:
    """Return the user's message: one text, unless it has a file that the model gets unchanged."""
    parts: list[Content] = []
    for part in message.parts:
        parts += file_content(part, files) if isinstance(part, FilePart) else [text_content(_text(part))]
    for each in message.references:
        if text := "\n\n".join(filter(None, (each.text, each.answer))):
            parts.append(text_content(f"[Task {each.task_id}, {each.state}, came to this:]\n{text}"))
    return _as_content(parts)


_BLANK = "[empty]"
"""Replaces empty texts: several providers refuse an empty message or part."""


def _filled(text: str) -> str:
    return text if text.strip() else _BLANK


def _as_content(parts: Sequence[Content]) -> JsonValue:
    """Return parts as one text if all are texts; empty texts are left out."""
    parts = [part for part in parts if part["type"] != "text" or str(part["text"]).strip()]
    texts = [str(part["text"]) for part in parts if part["type"] == "text"]
    return _filled("\n\n".join(texts)) if len(texts) == len(parts) else [*parts]


def _text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return json.dumps(part.data, ensure_ascii=False)
        case FilePart():
            return describe(part)


def _assistant_message(message: AssistantMessage) -> Sent:
    """Return the reply with its source's opaque fields; see `everloop.models.interface.Opaque`."""
    made: Sent = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        made["content"] = message.text if message.text.strip() else None
        made["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    fields = _opaque(message.opaque)
    if message.reasoning_field and message.reasoning:
        fields[message.reasoning_field] = message.reasoning
    if fields or any(call.opaque for call in message.tool_calls):
        made["opaque"] = {"source": message.source, "fields": fields}
    return made


def _tool_call(call: ToolCall) -> Sent:
    # Models invent names that providers do not accept back.
    function: Sent = {"name": as_tool_name(call.name), "arguments": readable_arguments(call.arguments)}
    made: Sent = {"id": call.id, "type": "function", "function": function}
    return {**made, "opaque": _opaque(call.opaque)} if call.opaque else made


def _opaque(text: str) -> dict[str, JsonValue]:
    return json.loads(text) if text else {}


def readable_arguments(written: str) -> str:
    """Return the arguments as a JSON object, even if the model wrote something else.

    Several providers refuse a transcript with arguments that they cannot parse, and the task would fail.
    """
    if not written.strip():
        return "{}"
    try:
        # As strict as providers: no NaN, no halves of characters, no nesting hundreds deep.
        value: object = from_json(written, allow_inf_nan=False)
    except ValueError:
        value = None
    return written if isinstance(value, dict) else json.dumps({"malformed": written}, ensure_ascii=False)


def _create_task(agent: Agent) -> ListedTool:
    tools = f" In a task these tools can be used: {', '.join(agent.tools)}." if agent.tools else ""
    return ListedTool(
        name=CREATE_TASK,
        description="Take the user's message up as a task: for work that takes tools, several steps, "
        "or more than a few sentences. What can be answered at once, answer at once, without this." + tools,
        parameters={"type": "object", "properties": {}},
    )


def _offered_tools(
    agent: Agent, transcript: Sequence[TranscriptMessage], files: ReadFiles
) -> tuple[ListedTool, ...]:
    """Return the agent's own tools, those listed for the task under other names, and the reading tools."""
    last = next((message for message in reversed(transcript) if isinstance(message, ToolsMessage)), None)
    of_task = (tool for tool in (last.tools if last else ()) if tool.name not in agent.tools)
    return (*agent.offered_tools, *of_task, *_built_in_tools(agent, transcript, files))


def with_window(
    error: PromptTooLongError, window: int | None, transcript: Sequence[TranscriptMessage]
) -> PromptTooLongError:
    """Return the error with the size of the window, if it is known, and the largest result in the request."""
    text = str(error)
    if window:
        text += f"; the window has {window:,} tokens"
    results = [message for message in sent_messages(transcript) if isinstance(message, ToolMessage)]
    sizes = [(len(result.content.encode(errors="replace")), result.name) for result in results]
    for size, name in [max(sizes)] if sizes else []:
        text += f"; the largest result in it is that of {name!r}, {size:,} bytes"
    return PromptTooLongError(text, codes=error.codes)


def _built_in_tools(
    agent: Agent, transcript: Sequence[TranscriptMessage], files: ReadFiles
) -> Iterable[ListedTool]:
    """Yield the reading tools that the request needs. As the last ones they keep a cached prompt valid."""
    tools, sent = reading_tools(agent.max_result), sent_messages(transcript)
    if any(is_read_on(part, files) for message in sent for part in files_of(message)):
        yield listed(tools["read_attachment"])
    if any(isinstance(message, ToolMessage) and message.kept for message in sent):
        yield listed(tools["read_result"])
