"""Operations as A2A 0.3 has them, on every binding of that version."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from a2a.compat.v0_3 import types as types03
from a2a.compat.v0_3.request_handler import RequestHandler03
from a2a.server.context import ServerCallContext

_WAITING = frozenset({types03.TaskState.input_required, types03.TaskState.auth_required})

Response = types03.SendStreamingMessageSuccessResponse


class LegacyHandler(RequestHandler03):
    """Differs from the SDK's: the status that ends the stream of a message is final (0.3 §7.2).

    Its own marks those of ended tasks only; the stream ends where the task waits for its user, too.
    """

    async def on_message_send_stream(
        self, request: types03.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Response]:
        responses = cast("AsyncGenerator[Response]", super().on_message_send_stream(request, context))
        async with aclosing(responses):
            async for response in responses:
                result = response.result
                if isinstance(result, types03.TaskStatusUpdateEvent) and result.status.state in _WAITING:
                    result.final = True
                yield response
