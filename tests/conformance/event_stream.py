"""Reads server-sent events as HTML §9.2 writes them, strictly enough to notice what is no event stream."""

from collections.abc import AsyncGenerator, AsyncIterator

import httpx


async def data_of(response: httpx.Response) -> AsyncGenerator[str]:
    """Yield the data of each event; comments and events without data are passed over."""
    lines: list[str] = []
    async for line in _lines(response.aiter_text()):
        name, _, value = line.partition(":")
        if name == "data":
            lines.append(value.removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines.clear()


async def _lines(texts: AsyncIterator[str]) -> AsyncGenerator[str]:
    """Yield lines; httpx would also part them where Unicode does, which may be inside of JSON."""
    rest = ""
    async for text in texts:
        *lines, rest = (rest + text).replace("\r\n", "\n").split("\n")
        for line in lines:
            yield line
