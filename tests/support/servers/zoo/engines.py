"""Servers of models that people run themselves: vLLM and llama.cpp."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tests.support.servers.zoo.local import LocalServer
from tests.support.servers.zoo.provider import (
    Fault,
    Framing,
    Given,
    Object,
    Played,
    Quirk,
    broken_stream,
    calls_of,
    faulty,
    function_of,
    has_late_system,
    is_json_object,
    is_text,
    messages_of,
    openai_error,
    refuse,
)

_BAD = "invalid_request_error"
_SERVING = "https://github.com/vllm-project/vllm vllm/entrypoints/openai/chat_completion/serving.py"


class VLLM(LocalServer):
    """vLLM of 2026, with parsers for tools and reasoning."""

    name = "vllm"
    model = "Qwen/Qwen3.6-35B-A3B-FP8"
    reasoning = "reasoning"
    quirks = (
        Quirk(
            "reasoning in `reasoning`, and token_ids: null in the choice",
            "https://github.com/Nayjest/lm-proxy/issues/69",
        ),
        Quirk("stop_reason beside the finish reason", _SERVING, "source"),
        Quirk("ids chatcmpl-tool-…", _SERVING, "source"),
        Quirk("a named tool_choice ends with stop though there are calls", _SERVING, "source"),
        Quirk("[DONE] also behind an error", _SERVING, "source"),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "error in stream": broken_stream(
            "down",
            _SERVING,
            'data: {"error": {"message": "EngineCore died", "type": "InternalServerError", "param": null, '
            '"code": 500}}\n\n',
            "data: [DONE]\n\n",
            evidence="source",
        ),
        "no tools, flat error": faulty(
            "refused",
            "https://github.com/vllm-project/vllm/issues/9986",
            400,
            {
                "object": "error",
                "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser '
                "to be set",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
            evidence="reported",
        ),
        "too long": faulty(
            "too long",
            "agents' logs",
            400,
            openai_error(
                "This model's maximum context length is 65536 tokens. However, your request has 99103 "
                "input tokens. Please reduce the length of the input messages. (parameter=input_tokens, "
                "value=99103)",
                "BadRequestError",
                "input_tokens",
                400,
            ),
            evidence="reported",
        ),
        # It stays in the conversation: so every later call fails, too.
        "no images": faulty(
            "refused",
            "agents' logs",
            400,
            openai_error(
                "At most 0 image(s) may be provided in one prompt. (parameter=image)",
                "BadRequestError",
                "image",
                400,
            ),
            evidence="reported",
        ),
        "wrong key": faulty(
            "refused", "vLLM AuthenticationMiddleware", 401, {"error": "Unauthorized"}, evidence="source"
        ),
        # The default of Starlette.
        "text for an error": faulty("down", "Starlette", 500, "Internal Server Error", evidence="assumed"),
    }

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        return Given(played, tuple(f"chatcmpl-tool-{number}d{call}" for call in range(len(played.calls))))

    def judge(self, body: Object) -> None:
        if body["model"] != self.model:
            refuse(
                404,
                openai_error(f"The model `{body['model']}` does not exist.", "NotFoundError", "model", 404),
                _SERVING,
            )
        if has_late_system(body):
            text = "System message must be at the beginning."
            refuse(400, openai_error(text, "BadRequestError", None, 400), "vllm#41114 (Qwen from 3.5 on)")

    def play(self, given: Given, body: Object) -> list[Object | str]:
        events = super().play(given, body)
        if given.reply.calls and not is_text(body.get("tool_choice")):
            last = next(e for e in reversed(events) if isinstance(e, dict) and e["choices"])
            last.update(self.chunk(body, {}, "stop"))
        return events

    def chunk(self, body: Object, delta: Object, reason: str | None = None) -> Object:
        choice: Object = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        more: Object = {"stop_reason": None} if reason else {}
        return {
            "id": "chatcmpl-b29a409de07032f4",
            "object": "chat.completion.chunk",
            "created": 1777477438,
            "model": body["model"],
            "choices": [{**choice, **more, "token_ids": None}],
        }


class QwenWithoutParser(VLLM):
    """Qwen behind vLLM without --reasoning-parser: its template has already opened the thought."""

    model = "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8"
    quirks = (
        Quirk(
            "a reply begins within a thought: there is a </think>, and no <think> before it",
            "https://github.com/vllm-project/vllm/issues/31045; vllm#17144",
        ),
        Quirk(
            "arguments cut at the limit of tokens end with tool_calls",
            "https://github.com/vllm-project/vllm/issues/53269",
            "reported",
        ),
    )

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        text = f"{reply.thought}\n</think>\n\n{reply.text}" if reply.thought else reply.text
        told = "" if reply.calls else reply.reason
        return super().play(replace(given, reply=replace(reply, thought="", text=text, reason=told)), body)


class KimiK2(VLLM):
    """Kimi K2 behind vLLM: its template writes the id of a call in the place of the tool's name."""

    model = "moonshotai/Kimi-K2.7"
    quirks = (
        Quirk(
            "ids are functions.NAME:NUMBER; with others in the history the model stops calling tools",
            "https://github.com/getkimchi/kimchi/pull/1066; mlx-lm PR 821; llxprt-code#713",
            "reported",
        ),
    )

    def prepare(self, played: Played) -> Given:
        first = sum(len(given.ids) for given in self.given)
        ids = [f"functions.{name}:{number}" for number, (name, _) in enumerate(played.calls, first)]
        return replace(super().prepare(played), ids=tuple(ids))

    def judge(self, body: Object) -> None:
        super().judge(body)
        calls = [call for message in messages_of(body) for call in calls_of(message)]
        named = [f"functions.{function_of(call).get('name')}:{number}" for number, call in enumerate(calls)]
        results = [each["tool_call_id"] for each in messages_of(body) if each["role"] == "tool"]
        if not [call.get("id") for call in calls] == named == results:
            self.regrets.append("ids that the model does not know")


_LLAMA = "https://github.com/ggml-org/llama.cpp"


def _llama_error(code: int, message: str, kind: str, **more: int) -> Object:
    return {"error": {"code": code, "message": message, "type": kind, **more}}


class LlamaCpp(LocalServer):
    """llama-server --jinja."""

    name = "llamacpp"
    model = "Qwen3.6-27B-Q4_0.gguf"
    reasoning = "reasoning_content"
    framing = Framing(comment=":")
    quirks = (
        Quirk("content: null in the first delta; keys in another order", f"{_LLAMA}/pull/24013"),
        Quirk("comments of a colon alone", f"{_LLAMA}/pull/24013"),
        Quirk("timings in the last chunk", f"{_LLAMA} tools/server/server-task.cpp", "source"),
        Quirk(
            "one call a reply unless parallel_tool_calls is true",
            f"{_LLAMA} tools/server/README.md",
            "source",
        ),
        Quirk("ids of 32 letters and digits", f"{_LLAMA} tools/server/server-common.cpp", "source"),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "loading": faulty(
            "down",
            f"{_LLAMA} tools/server/server.cpp",
            503,
            _llama_error(503, "Loading model", "unavailable_error"),
            evidence="source",
        ),
        "error in stream": broken_stream(
            "down",
            f"{_LLAMA}/issues/20532",
            'data: {"error":{"code":500,"message":"Failed to parse input at pos 184: '
            '<tool_call>","type":"server_error"}}\n\n',
            evidence="source",
        ),
        "error in a field of its own": broken_stream(
            "too long",
            f"{_LLAMA}/pull/16109",
            'error: {"code":400,"message":"the request exceeds the available context size. try increasing '
            'the context size or enable context shift","type":"invalid_request_error"}\n\n',
            "data: [DONE]\n\n",
        ),
        "too long": faulty(
            "too long",
            f"{_LLAMA}/pull/15780",
            400,
            _llama_error(
                400,
                "the request exceeds the available context size, try increasing it",
                "exceed_context_size_error",
                n_prompt_tokens=14429,
                n_ctx=8192,
            ),
        ),
        # Neither of the two ever recovers, but nothing in it says so.
        "no images": faulty(
            "down",
            f"{_LLAMA} tools/server/server-common.cpp",
            500,
            _llama_error(
                500,
                "image input is not supported - hint: if this is unexpected, you may need to provide the "
                "mmproj",
                "server_error",
            ),
            evidence="source",
        ),
        "without jinja": faulty(
            "down",
            f"{_LLAMA} tools/server/server-common.cpp",
            500,
            _llama_error(500, "tools param requires --jinja flag", "server_error"),
            evidence="source",
        ),
    }

    def cast(self, played: Played, body: Object) -> Played:
        if body.get("parallel_tool_calls") is True:
            return played
        return replace(played, calls=played.calls[:1])

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        return Given(played, tuple(f"Xy7{number:014}{call:015}" for call in range(len(played.calls))))

    def judge(self, body: Object) -> None:
        if has_late_system(body):
            text = "Jinja Exception: System message must be at the beginning."
            refuse(500, _llama_error(500, text, "server_error"), f"{_LLAMA}/issues/27367")
        for message in messages_of(body):
            for call in calls_of(message):
                if not is_json_object(function_of(call).get("arguments")):
                    refuse(
                        500,
                        _llama_error(
                            500,
                            "Failed to parse tool call arguments as JSON: "
                            "[json.exception.parse_error.101] parse error",
                            "server_error",
                        ),
                        f"{_LLAMA}/issues/25510",
                    )
            if message["role"] == "assistant" and message.get("content") is None and not calls_of(message):
                refuse(
                    400,
                    _llama_error(
                        400, "Assistant message must contain either 'content' or 'tool_calls'!", _BAD
                    ),
                    f"{_LLAMA} common/chat.cpp",
                )

    def opening(self) -> list[Object]:
        return [{"role": "assistant", "content": None}]

    def chunk(self, body: Object, delta: Object, reason: str | None = None) -> Object:
        choice: Object = {"finish_reason": reason, "index": 0, "delta": delta}
        more: Object = {"timings": {"prompt_n": 14, "predicted_n": 8}} if reason else {}
        return {
            "choices": [choice],
            "created": 1780390177,
            "id": "chatcmpl-uI7JNfldkYifvjYLehw5OnRid3v0JxBC",
            "model": self.model,
            "system_fingerprint": "b9465-23e6dab86",
            "object": "chat.completion.chunk",
            **more,
        }


class OldLlamaCpp(LlamaCpp):
    """llama-server with a template that gives calls no id."""

    quirks = (
        *LlamaCpp.quirks,
        # They are written only with an id; it follows that some build sends such calls.
        Quirk("neither id nor type in a call", f"{_LLAMA} common/chat.cpp", "assumed"),
    )

    def fragments(self, index: int, id_: str, name: str, arguments: str) -> list[Object]:
        more = super().fragments(index, id_, name, arguments)[1:]
        return [{"index": index, "function": {"name": name, "arguments": ""}}, *more]
