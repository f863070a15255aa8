"""A2A 0.3 as the SDK serves it. Loaded with its first call: it loads the SDK's server, 6 MiB."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from a2a.compat.v0_3 import types as types03
from a2a.compat.v0_3.request_handler import RequestHandler03
from a2a.server.context import ServerCallContext

_WAITING = frozenset({types03.TaskState.input_required, types03.TaskState.auth_required})

Response = types03.SendStreamingMessageSuccessResponse


class LegacyHandler(RequestHandler03):
    """Adds to the SDK's handler that the status that ends a message's stream is final (0.3 §7.2).

    The SDK marks those of ended tasks only; a stream also ends where the task waits for its user. The
    extended card's list of interfaces repeats the preferred one (0.3 §5.6.2).
    """

    async def on_get_extended_agent_card(
        self, request: types03.GetAuthenticatedExtendedCardRequest, context: ServerCallContext
    ) -> types03.AgentCard:
        card = await super().on_get_extended_agent_card(request, context)
        preferred = types03.AgentInterface(url=card.url, transport=card.preferred_transport or "JSONRPC")
        card.additional_interfaces = [preferred, *(card.additional_interfaces or [])]
        return card

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
