"""The refusals of OpenAI's Responses API.

"Probed" is a public log of 51 requests to api.openai.com on 2026-09-24, each with one thing changed.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

from pydantic import JsonValue

from tests.support.servers.zoo.provider import Object, openai_error, refuse

GITHUB = "https://github.com"
FIXTURES = f"{GITHUB}/vercel/ai/tree/main/packages/openai/src/responses/__fixtures__"
REFERENCE = "https://developers.openai.com/api/reference/resources/responses"
BAD = "invalid_request_error"
_PROBED = "probed 2026-09-24"

_FIELDS = frozenset(
    [
        "background",
        "conversation",
        "context_management",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    ]
)
_MOVED = {"response_format": "text.format", "reasoning_effort": "reasoning.effort"}
_TAKEN: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "role", "content", "phase", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "arguments", "status", "namespace"}),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "web_search_call": frozenset({"type", "id", "status", "action"}),
}
"""The fields of each item. `status` of reasoning is refused, though it is in the types (jcode#1028)."""

_PARTS = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}


_OF_REPLIES = {"reasoning", "function_call", "web_search_call"}


def judge(body: Object, given: Sequence[Sequence[Object]]) -> None:
    """Refuse a request. `given` are the items of each played reply.

    Raises:
        RefusedError: The request is refused.
    """
    for name in body.keys() - _FIELDS:
        if name in _MOVED:
            _bad(
                f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to "
                f"'{_MOVED[name]}'.",
                _PROBED,
                name,
                "unsupported_parameter",
            )
        _bad(f"Unknown parameter: '{name}'.", _PROBED, name, "unknown_parameter")
    _judge_settings(body)
    _judge_tools(body)
    items = objects_of(body["input"])
    for place, item in enumerate(items):
        _judge_item(place, item)
        if item.get("type") == "reasoning":
            _judge_reasoning(item, given, is_kept=body.get("store", True) is not False)
    _judge_order(items)
    _judge_ids(items, given)


def _judge_settings(body: Object) -> None:
    model, effort = str(body["model"]), object_of(body.get("reasoning")).get("effort")
    reasons = model.startswith(("gpt-5", "gpt-6", "o")) and "-chat" not in model
    for name in ("temperature", "top_p"):
        if reasons and effort != "none" and name in body:
            _bad(f"Unsupported parameter: '{name}' is not supported with this model.", _PROBED, name)
    if not reasons and "reasoning.encrypted_content" in list_of(body.get("include")):
        _bad(
            "Encrypted content is not supported with this model.",
            "NousResearch/hermes-agent#24234",
            "include",
        )
    if effort == "minimal" and not model.startswith("gpt-5"):
        _bad(
            f"Unsupported value: 'minimal' is not supported with the '{model}' model.",
            _PROBED,
            "reasoning.effort",
            "unsupported_value",
        )
    if _int(body.get("max_output_tokens", 16)) < 16:
        _bad(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got "
            f"{body['max_output_tokens']} instead.",
            _PROBED,
            "max_output_tokens",
            "integer_below_min_value",
        )
    shape = object_of(object_of(body.get("text")).get("format"))
    if shape.get("type") == "json_schema" and "name" not in shape:
        _missing("text.format.name", f"{GITHUB}/vercel/ai/issues/21202")
    if shape.get("type") == "json_object" and "json" not in json.dumps(body["input"]).lower():
        _bad(
            "Response input messages must contain the word 'json' in some form to use 'text.format' of "
            "type 'json_object'.",
            "miracodeai/mira#267",
            "input",
        )


def _judge_tools(body: Object) -> None:
    tools = objects_of(body.get("tools"))
    for place, tool in enumerate(tools):
        if tool["type"] == "function" and "name" not in tool:
            _missing(f"tools[{place}].name", REFERENCE)
        is_closed = object_of(tool.get("parameters")).get("additionalProperties") is False
        if tool["type"] == "function" and tool.get("strict", True) and not is_closed:
            _bad(
                f"Invalid schema for function '{tool['name']}': In context=(), 'additionalProperties' is "
                "required to be supplied and to be false.",
                f"{GITHUB}/YourGPT/copilot-sdk/pull/108",
                f"tools[{place}].parameters",
                "invalid_function_parameters",
            )
    choice = body.get("tool_choice")
    source = f"{GITHUB}/vllm-project/vllm/pull/40399"
    if choice == "required" and not tools:
        _bad("Tool choice 'required' must be specified with 'tools' parameter.", source, "tool_choice")
    if isinstance(choice, dict) and choice.get("name") not in [tool.get("name") for tool in tools]:
        _bad("Tool choice 'function' not found in 'tools' parameter.", source, "tool_choice")


def _judge_item(place: int, item: Object) -> None:
    kind = str(item.get("type", "message"))
    if kind not in _TAKEN:
        _bad(f"Invalid value: '{kind}'.", REFERENCE, f"input[{place}]", "invalid_value")
    for name in item.keys() - _TAKEN[kind]:
        _bad(
            f"Unknown parameter: 'input[{place}].{name}'.",
            f"{GITHUB}/1jehuang/jcode/issues/1028",
            f"input[{place}].{name}",
            "unknown_parameter",
        )
    required = {"function_call": ("call_id", "name", "arguments"), "reasoning": ("summary",)}
    for name in required.get(kind, ()):
        if not isinstance(item.get(name), str | list):
            _missing(f"input[{place}].{name}", f"{FIXTURES}/openai-issue-17402-error.1.json")
    if kind == "message":
        _judge_parts(place, item)


def _judge_parts(place: int, item: Object) -> None:
    taken = _PARTS[str(item["role"])]
    for number, part in enumerate(objects_of(item["content"])):
        if part["type"] not in taken:
            names = " and ".join(f"'{name}'" for name in taken)
            _bad(
                f"Invalid value: '{part['type']}'. Supported values are: {names}.",
                "clients of Codex, several",
                f"input[{place}].content[{number}]",
                "invalid_value",
            )


def _judge_reasoning(item: Object, given: Sequence[Sequence[Object]], *, is_kept: bool) -> None:
    if not item.get("encrypted_content") and not is_kept:
        refuse(
            404,
            openai_error(
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set "
                "to false. Try again with `store` set to true, or remove this item from your input.",
                BAD,
                "input",
            ),
            f"{GITHUB}/can1357/oh-my-pi/issues/41",
        )
    sealed = [one.get("encrypted_content") for output in given for one in output]
    if item.get("encrypted_content") not in sealed:
        _bad(
            "The encrypted content gAAA...DQ== could not be verified. Reason: Encrypted content could not "
            "be decrypted or parsed.",
            f"{GITHUB}/openai/codex/issues/8145",
            None,
            "invalid_encrypted_content",
        )


def _judge_order(items: Sequence[Object]) -> None:
    asked = [item.get("call_id") for item in items if item.get("type") == "function_call"]
    for place, item in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else {}
        follows = following.get("role") == "assistant" or str(following.get("type")) in _OF_REPLIES
        if item.get("type") == "reasoning" and not follows:
            _bad(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following "
                "item.",
                f"{GITHUB}/continuedev/continue/issues/8933",
                "input",
            )
        if item.get("type") == "function_call_output" and item["call_id"] not in asked:
            _bad(
                f"No tool call found for function call output with call_id {item['call_id']}.",
                f"{FIXTURES}/openai-issue-18537-error.1.json",
                "input",
            )
    answered = [item.get("call_id") for item in items if item.get("type") == "function_call_output"]
    for call in asked:
        if call not in answered:
            _bad(
                f"No tool output found for function call {call}.",
                f"{GITHUB}/router-for-me/CLIProxyAPI/issues/2368",
                "input",
            )


def _judge_ids(items: Sequence[Object], given: Sequence[Sequence[Object]]) -> None:
    """Refuse items with an id but without the reasoning that came with it."""
    sent = [item.get("id") for item in items]
    for output in given:
        thoughts = [str(item["id"]) for item in output if item["type"] == "reasoning"]
        for item in output:
            lost = [one for one in thoughts if one not in sent]
            if item["type"] != "reasoning" and item["id"] in sent and lost:
                _bad(
                    f"Item '{item['id']}' of type '{item['type']}' was provided without its required "
                    f"'reasoning' item: '{lost[0]}'.",
                    "mastra, a changeset",
                    "input",
                )


def _bad(message: str, source: str, param: str | None = None, code: str | None = None) -> NoReturn:
    refuse(400, openai_error(message, BAD, param, code), source)


def _missing(name: str, source: str) -> NoReturn:
    _bad(f"Missing required parameter: '{name}'.", source, name, "missing_required_parameter")


# Parts of a request that it reads.


def list_of(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def objects_of(value: JsonValue) -> list[Object]:
    return [one for one in list_of(value) if isinstance(one, dict)]


def object_of(value: JsonValue) -> Object:
    return value if isinstance(value, dict) else {}


def _int(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value
