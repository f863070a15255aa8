"""Real replies, recorded once into a file and replayed without the provider.

A tape holds requests and responses as JSON. It holds no request headers, and no keys and other secrets
of the providers, even where a provider repeats them.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
from pydantic import BaseModel, BeforeValidator, JsonValue, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from everloop.models.catalogue import Catalogue, Provider
from everloop.testing.errors import ScriptError
from everloop.testing.model import StandIn, served
from everloop.workflows.contract.parts import cut

FORMAT: Literal["everloop-recording/1"] = "everloop-recording/1"
SILENCE = 300.0
"""Timeout in seconds of a silent provider."""

_RECORDED_HEADERS = ("content-type", "retry-after")
_OF_ONE_HOP = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}
_NEVER_THE_SAME = {"prompt_cache_key", "user", "safety_identifier"}
_ID = re.compile(
    r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{16,}"
    r"|(?:call|fc|rs|msg|resp|chatcmpl|toolu)[_-][\w-]{8,})\b"
)
_SECRET = "[secret]"  # noqa: S105 -- what stands in place of one
_SHORTEST_SECRET = 6
_SHOWN = 160
_MOST_DIFFERENCES = 3


class Exchange(BaseModel):
    """A request and its response. `body`: in pieces of a stream, one event each."""

    provider: str
    path: str
    request: JsonValue
    status: int
    headers: dict[str, str]
    body: list[str]


class Tape(BaseModel):
    """A file of exchanges.

    `model`: of agents that name none. `providers`: the protocol settings of the recorded providers
    without addresses and secrets: settings may differ where a tape is replayed.
    """

    everloop: Literal["everloop-recording/1"]
    model: str | None = None
    providers: dict[str, Provider] = {}
    exchanges: Annotated[list[Exchange], BeforeValidator(list)] = []


class Recording(StandIn):
    """Records the models' replies if the file is missing, and replays it otherwise.

    To record again, delete the file. Requests are compared without ids, which differ each time, and
    without matches of the regular expressions in `ignore`, such as a date in a prompt.
    """

    def __init__(self, file: str | Path, *, ignore: Sequence[str] = ()) -> None:
        super().__init__()
        self.file = Path(file)
        self._ignored = [re.compile(each) for each in ignore]
        self._tape = Tape(everloop=FORMAT)
        self._left: list[Exchange] = []
        self._providers: Mapping[str, Provider] = {}

    @property
    def left(self) -> int:
        """Number of unused recorded replies."""
        return len(self._left)

    @asynccontextmanager
    async def opened(self, catalogue: Catalogue) -> AsyncGenerator[Catalogue]:
        if await asyncio.to_thread(self.file.exists):
            self._tape = await asyncio.to_thread(self._read)
            self._left = list(self._tape.exchanges)
            async with served(_app(self._play)) as url:
                yield self._led_to(url, catalogue, has_keys=False)
            return
        self._tape, self._providers = (
            Tape(everloop=FORMAT, model=catalogue.default_model),
            catalogue.providers,
        )
        async with httpx2.AsyncClient(timeout=SILENCE) as client:

            async def record(request: Request) -> Response:
                return await self._record(request, client)

            async with served(_app(record)) as url:
                yield self._led_to(url, catalogue, has_keys=True)
        if self._tape.exchanges and not self.problems:
            await asyncio.to_thread(self._write)

    def _led_to(self, url: str, catalogue: Catalogue, *, has_keys: bool) -> Catalogue:
        providers = {
            name: replace(provider, base_url=f"{url}/{name}", key=provider.key if has_keys else "taped")
            for name, provider in {**catalogue.providers, **self._tape.providers}.items()
        }
        if has_keys:
            return replace(catalogue, providers=providers)
        model = catalogue.default_model or self._tape.model
        return replace(catalogue, providers=providers, default_model=model, missing={})

    # Recording.

    async def _record(self, request: Request, client: httpx2.AsyncClient) -> Response:
        provider = self._providers[request.path_params["provider"]]
        path, body = request.path_params["path"], await request.body()
        headers = {name: value for name, value in request.headers.items() if name not in _OF_ONE_HOP}
        sent_request = client.build_request(
            "POST",
            f"{provider.base_url.rstrip('/')}/{path}",
            params=dict(request.query_params),
            content=body,
            headers={**headers, "accept-encoding": "identity"},
        )
        try:
            answer = await client.send(sent_request, stream=True)
        except httpx2.HTTPError as error:
            self.problems.append(f"provider {provider.name!r} cannot be reached: {type(error).__name__}")
            return _refusal(self.problems[0])
        exchange = Exchange(
            provider=provider.name,
            path=path,
            request=json.loads(self._hidden(body.decode())),
            status=answer.status_code,
            headers={name: answer.headers[name] for name in _RECORDED_HEADERS if name in answer.headers},
            body=[],
        )

        async def pieces() -> AsyncGenerator[bytes]:
            came: list[bytes] = []
            try:
                async for piece in answer.aiter_bytes():
                    came.append(piece)
                    yield piece
            finally:
                await answer.aclose()
            heard = self._hidden(b"".join(came).decode(errors="replace"))
            exchange.body = re.findall(r".+?\n\n|.+$", heard, re.DOTALL)
            self._tape.exchanges.append(exchange)
            anybody = replace(provider, base_url="", key="", headers={}, query={})
            self._tape.providers[provider.name] = anybody

        return StreamingResponse(pieces(), answer.status_code, exchange.headers)

    def _hidden(self, text: str) -> str:
        """Mask the secrets of the providers in a text."""
        for provider in self._providers.values():
            for secret in (provider.key, *provider.headers.values(), *provider.query.values()):
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, _SECRET).replace(json.dumps(secret)[1:-1], _SECRET)
        return text

    def _write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.file.with_name(f".{self.file.name}.new")
        draft.write_text(self._tape.model_dump_json(indent=1, exclude_defaults=True) + "\n", encoding="utf-8")
        draft.replace(self.file)

    # Playing.

    def _read(self) -> Tape:
        try:
            return Tape.model_validate_json(self.file.read_bytes())
        except ValidationError:
            raise ScriptError(
                f"{self.file} is no recording of this version; delete it, and it is taped anew"
            ) from None

    async def _play(self, request: Request) -> Response:
        body = json.loads(await request.body())
        comparable = self._comparable(body)
        for exchange in self._left:
            if self._comparable(exchange.request) == comparable:
                self._left.remove(exchange)
                pieces = [piece.encode() for piece in exchange.body]
                return StreamingResponse(_each(pieces), exchange.status, exchange.headers)
        self.problems.append(self._described(comparable))
        return _refusal("the recording has no reply; the test says why")

    def _comparable(self, request: JsonValue) -> JsonValue:
        """Replace ids in a request by numbers, in order of appearance."""
        names: dict[str, str] = {}

        def number(found: re.Match[str]) -> str:
            return names.setdefault(found[0], f"id-{len(names) + 1}")

        def plain(value: JsonValue) -> JsonValue:
            if isinstance(value, dict):
                return {key: plain(each) for key, each in value.items() if key not in _NEVER_THE_SAME}
            if isinstance(value, list):
                return [plain(each) for each in value]
            if isinstance(value, str):
                for pattern in self._ignored:
                    value = pattern.sub("…", value)
                return _ID.sub(number, value)
            return value

        return plain(request)

    def _described(self, request: JsonValue) -> str:
        """Describe how a request differs from the next recorded one."""
        count = len(self._tape.exchanges)
        if not self._left:
            return (
                f"{self.file} holds {count} replies, and the model was asked for one more; "
                "delete the file to tape anew"
            )
        taped = [self._comparable(exchange.request) for exchange in self._left]
        found = min((list(differences(each, request)) for each in taped), key=len)
        shown = "; ".join(found[:_MOST_DIFFERENCES])
        more = f"; and {len(found) - _MOST_DIFFERENCES} more" if len(found) > _MOST_DIFFERENCES else ""
        return (
            f"{self.file} has no such request among the {len(self._left)} of {count} that are left. The "
            f"nearest differs in: {shown}{more}. Delete the file to tape anew, or let ignore=[…] match what "
            "never stays the same"
        )


def _app(answer: Any) -> Starlette:  # noqa: ANN401 -- Starlette's own type of endpoints
    return Starlette(routes=[Route("/{provider}/{path:path}", answer, methods=["POST"])])


async def _each(pieces: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


def _refusal(message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, 400)


def differences(
    taped: JsonValue, sent: JsonValue, place: str = "", words: tuple[str, str] = ("taped", "now")
) -> Iterator[str]:
    """Yield the differences of two values as text; `words`: the names of the two."""
    if isinstance(taped, dict) and isinstance(sent, dict):
        for key in dict.fromkeys([*taped, *sent]):
            yield from differences(taped.get(key), sent.get(key), f"{place}.{key}" if place else key, words)
    elif isinstance(taped, list) and isinstance(sent, list):
        for index in range(max(len(taped), len(sent))):
            before, now = (each[index] if index < len(each) else None for each in (taped, sent))
            yield from differences(before, now, f"{place}[{index}]", words)
    elif taped != sent:
        yield f"{place or 'all of it'}: {words[0]} {_shown(taped)}, {words[1]} {_shown(sent)}"


def _shown(value: JsonValue) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return cut(text, _SHOWN)
