"""The HTTP side of the demo model: two endpoints of OpenAI's API, with its errors."""

import asyncio
from collections.abc import AsyncIterator

from openai.types import Model
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from everloop.deploy.demo_model.chat_request import ChatRequest
from everloop.deploy.demo_model.completion import Completion, complete
from everloop.deploy.demo_model.script import MODEL, next_reply

WRONG_KEY = "wrong"
"""The one API key that is refused, so that the error can be shown."""


def build_app(delay: float) -> Starlette:
    """Return the application; `delay` is the pause before each chunk of a stream, in seconds."""

    async def chat_completions(request: Request) -> Response:
        if refusal := _refuse_key(request):
            return refusal
        try:
            asked = ChatRequest.model_validate_json(await request.body())
        except ValidationError as error:
            return _malformed(error)
        if asked.model != MODEL:
            return _error(
                404, f"The model {asked.model!r} does not exist; this server has {MODEL!r}", "model_not_found"
            )
        completion = complete(asked, next_reply(asked))
        if not asked.stream:
            return Response(completion.whole().model_dump_json(), media_type="application/json")
        include_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        chunks = _stream(completion, delay, include_usage=include_usage)
        return StreamingResponse(chunks, media_type="text/event-stream")

    async def models(request: Request) -> Response:
        model = Model(id=MODEL, created=0, object="model", owned_by="everloop")
        return _refuse_key(request) or JSONResponse({"object": "list", "data": [model.model_dump()]})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/models", models),
        ]
    )


async def _stream(completion: Completion, delay: float, *, include_usage: bool) -> AsyncIterator[str]:
    for chunk in completion.chunks(include_usage=include_usage):
        await asyncio.sleep(delay)
        yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
    yield "data: [DONE]\n\n"


def _refuse_key(request: Request) -> Response | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key and key != WRONG_KEY:
        return None
    return _error(401, "Incorrect API key provided", "invalid_api_key")


def _malformed(error: ValidationError) -> Response:
    first = error.errors(include_url=False, include_context=False)[0]
    return _error(400, first["msg"], param=".".join(str(step) for step in first["loc"]) or None)


def _error(status: int, message: str, code: str | None = None, param: str | None = None) -> Response:
    body = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return JSONResponse({"error": body}, status)
