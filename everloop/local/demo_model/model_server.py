"""HTTP server of a scripted model: two endpoints of OpenAI's API, with its errors."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from everloop.local.demo_model.chat_request import ChatRequest
from everloop.local.demo_model.completion import Completion, Refusal, Reply, complete

WRONG_KEY = "wrong"
"""The one API key that is rejected, to demonstrate the error."""

Answer = Callable[[ChatRequest], Awaitable[Reply | Refusal]]
"""Returns the reply of the model; it also decides which models exist."""


class ConnectionCutError(Exception):
    """Makes the server drop the connection in the middle of a reply."""


def build_app(
    answer: Answer, *models: str, delay: float = 0, unheard: Callable[[Reply], None] | None = None
) -> Starlette:
    """Return the application; `models` are listed, `delay` is the pause before each chunk, in seconds.

    `unheard` is called with a reply whose client has disconnected before its end.
    """
    logging.getLogger("uvicorn.error").addFilter(_is_no_cut)

    async def chat_completions(request: Request) -> Response:
        if refusal := _refuse_key(request):
            return refusal
        try:
            request_body = ChatRequest.model_validate_json(await request.body())
        except ValidationError as error:
            return _malformed(error)
        reply = await answer(request_body)
        if isinstance(reply, Refusal):
            return _error(reply.status, reply.message, reply.code, retry_after=reply.retry_after)
        completion = complete(request_body, reply)
        if not request_body.stream:
            if reply.is_cut:
                raise ConnectionCutError
            return JSONResponse(completion.to_json())
        include_usage = bool(request_body.stream_options and request_body.stream_options.include_usage)
        chunks = _stream(completion, delay, unheard, include_usage=include_usage)
        return StreamingResponse(chunks, media_type="text/event-stream")

    async def list_models(request: Request) -> Response:
        data = [{"id": model, "created": 0, "object": "model", "owned_by": "everloop"} for model in models]
        return _refuse_key(request) or JSONResponse({"object": "list", "data": data})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/models", list_models),
        ]
    )


async def _stream(
    completion: Completion, delay: float, unheard: Callable[[Reply], None] | None, *, include_usage: bool
) -> AsyncGenerator[str]:
    chunks = [
        json.dumps(chunk, ensure_ascii=False) for chunk in completion.chunks(include_usage=include_usage)
    ]
    sent = chunks[: len(chunks) // 2] if completion.reply.is_cut else [*chunks, "[DONE]"]
    try:
        for chunk in sent:
            await asyncio.sleep(delay)
            yield f"data: {chunk}\n\n"
    except BaseException:
        if unheard:
            unheard(completion.reply)
        raise
    if completion.reply.is_cut:
        raise ConnectionCutError


def _is_no_cut(record: logging.LogRecord) -> bool:
    """Keep intended disconnections out of the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], ConnectionCutError))


def _refuse_key(request: Request) -> Response | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key and key != WRONG_KEY:
        return None
    return _error(401, "Incorrect API key provided", "invalid_api_key")


def _malformed(error: ValidationError) -> Response:
    first = error.errors(include_url=False, include_context=False)[0]
    return _error(400, first["msg"], param=".".join(str(step) for step in first["loc"]) or None)


def _error(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    retry_after: int | None = None,
) -> Response:
    body = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    headers = None if retry_after is None else {"Retry-After": str(retry_after)}
    return JSONResponse({"error": body}, status, headers)
