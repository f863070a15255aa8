"""Requests to the addresses of an Everloop beside A2A (docs/protocol/extension.md), and their responses."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from everloop.client.connection import PAGE
from everloop.client.errors import ExtensionMissingError, NotFoundError, ServerError
from everloop.client.server import Query, Server
from everloop.workflows.contract.http_extension import Address


class ExtensionResponse(BaseModel):
    """A response, or a part of one, of an Everloop beside A2A. Unknown fields are preserved."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)


AnswerT = TypeVar("AnswerT", bound=ExtensionResponse)


class ExtensionCalls:
    """Base of the parts of `Client`. Methods that need an Everloop raise ExtensionMissingError elsewhere."""

    _connection: Server

    async def _request(
        self, address: Address, *ids: str, body: JsonValue = None, query: Query | None = None, key: str = ""
    ) -> dict[str, Any]:
        """Return the JSON response of an address of the extension; requests with the same `key` count once.

        Raises:
            ExtensionMissingError: the server has no such address.
        """
        url = await self._connection.extension(address.path_of(*ids))
        try:
            answer = await self._connection.ask(address.method, url, body, query=query, key=key)
        except NotFoundError as error:
            if error.reason == "ADDRESS_UNKNOWN":
                raise ExtensionMissingError(
                    f"this Everloop has no {address.method} {address.path_of(*ids)}, which the call takes; "
                    "it is older than the client"
                ) from None
            raise
        if not isinstance(answer, dict):
            raise ServerError(f"what {url} answers is not what was expected")
        return cast("dict[str, Any]", answer)

    async def _listed(
        self, address: Address, *ids: str, name: str, kind: type[AnswerT], query: Query | None = None
    ) -> AsyncGenerator[AnswerT]:
        token = ""
        while True:
            asked = {**(query or {}), "pageSize": PAGE, "pageToken": token}
            page = await self._request(address, *ids, query=asked)
            for each in page.get(name, []):
                yield read(kind, each)
            token = page.get("nextPageToken", "")
            if not token:
                return


def read(kind: type[AnswerT], answer: Mapping[str, Any]) -> AnswerT:
    """Validate a response.

    Raises:
        ServerError: it does not match.
    """
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ServerError(f"the server's {kind.__name__} cannot be read: {place}: {problem['msg']}") from None
