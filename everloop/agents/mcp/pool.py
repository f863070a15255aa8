"""The sessions that a worker process has with one MCP server."""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import structlog

from everloop.agents.mcp.errors import McpUnavailableError
from everloop.agents.mcp.session import McpSession

MOST_SESSIONS = 32
"""How many callers with headers of their own keep a session; more only while all of them are in use."""

IDLE = 300.0
"""Seconds after which the session of a caller ends when nobody uses it."""

CLOSING = 10.0
"""Seconds that sessions have to end; a server that a command started needs up to 6 of them."""

_log = structlog.get_logger()


class SessionPool:
    """One session for each set of headers: opened on first use, shared, and replaced when it has ended.

    `most` are kept (default 32), each until it was out of use for `idle` seconds; None keeps them for ever.
    """

    def __init__(
        self,
        server: str,
        open_session: Callable[[Mapping[str, str]], McpSession],
        *,
        idle: float | None = IDLE,
        most: int = MOST_SESSIONS,
    ) -> None:
        self._server = server
        self._open = open_session
        self._idle = idle
        self._most = most
        self._sessions: OrderedDict[str, McpSession] = OrderedDict()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._alive: set[McpSession] = set()
        self._is_closed = False

    @asynccontextmanager
    async def session(self, headers: Mapping[str, str]) -> AsyncGenerator[McpSession]:
        """Yield the session for these headers, which may still be opening.

        Raises:
            McpUnavailableError: the pool is closed.
        """
        if self._is_closed:
            raise McpUnavailableError(f"the MCP server {self._server!r} is closed; the worker stops")
        key = _key(headers)
        session = self._find(key, headers)
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            if session.has_ended:
                session.retire()
            self._rest(key)

    async def close(self) -> None:
        """End all sessions, with whatever is running in them, for good."""
        self._is_closed = True
        for key in list(self._sessions):
            self._drop(key)
        for session in self._alive:
            session.leave()
        if self._alive:
            _, late = await asyncio.wait([session.owner for session in self._alive], timeout=CLOSING)
            for owner in late:
                _log.warning("MCP session does not end", server=self._server)
                owner.cancel()

    def _find(self, key: str, headers: Mapping[str, str]) -> McpSession:
        session = self._sessions.get(key)
        if session and session.has_ended:
            self._drop(key)
            session = None
        if session is None:
            session = self._sessions[key] = self._open(headers)
            self._alive.add(session)
            opened = session
            session.owner.add_done_callback(lambda _: self._alive.discard(opened))
        self._sessions.move_to_end(key)
        return session

    def _rest(self, key: str) -> None:
        """Make room, and see to it that a session without users ends some day."""
        for other in [key for key, session in self._sessions.items() if not session.users]:
            if len(self._sessions) <= self._most:
                break
            self._drop(other)
        session = self._sessions.get(key)
        if session and not session.users and self._idle is not None:
            self._stop_timer(key)
            self._timers[key] = asyncio.get_running_loop().call_later(self._idle, self._drop_unused, key)

    def _drop_unused(self, key: str) -> None:
        if (session := self._sessions.get(key)) and not session.users:
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._stop_timer(key)
        self._sessions.pop(key).retire()

    def _stop_timer(self, key: str) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()


def _key(headers: Mapping[str, str]) -> str:
    """Return what stands for headers without showing them."""
    written = json.dumps(sorted((name.lower(), value) for name, value in headers.items()))
    return hashlib.sha256(written.encode()).hexdigest()
