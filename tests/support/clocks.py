"""A Redis with a wrong clock: scripts read another time than the server's."""

from collections.abc import Awaitable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.stores import scripts as store_scripts
from everloop.stores.scripts import script, script_sha

_STORES = Path(store_scripts.__file__).parent

_TIME = "redis.call('TIME')"


class FastClock(Redis):
    """The same database with a clock for scripts that is `ahead`, and may be set back during a test."""

    def __init__(self, redis: Redis, ahead: timedelta = timedelta()) -> None:
        super().__init__(connection_pool=redis.connection_pool)
        self.ahead = ahead
        self.is_away = False
        """True if it answers no script."""
        self.scripts = 0
        """The number of scripts that were run."""

    def register_script(self, script: Any) -> Any:  # noqa: ANN401 -- as of redis-py
        """Return the script, which reads the clock at the time of each run."""

        def run(**arguments: Any) -> Awaitable[object]:  # noqa: ANN401 -- as of redis-py
            return super(FastClock, self).register_script(self._on_this_clock(script))(**arguments)

        return run

    def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 -- as of redis-py
        run = cast("Any", super().execute_command)
        return run(*self._command(args), **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:  # noqa: FBT001, FBT002 -- as of redis-py
        pipeline = super().pipeline(transaction, shard_hint)
        execute_command = cast("Any", pipeline.execute_command)

        def run(*args: Any, **options: Any) -> Any:  # noqa: ANN401 -- as of redis-py
            return execute_command(*self._command(args), **options)

        pipeline.execute_command = run
        return pipeline

    def _command(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a command with the adapted text of its script if it runs one."""
        text = _scripts().get(args[1]) if args[0] == "EVALSHA" else None
        return ("EVAL", self._on_this_clock(text), *args[2:]) if text else args

    def _on_this_clock(self, text: str) -> str:
        if self.is_away:
            raise RedisConnectionError
        self.scripts += 1
        seconds = round(self.ahead.total_seconds())
        return text.replace(_TIME, f"(function(t) t[1] = t[1] + {seconds} return t end)({_TIME})")


@cache
def _scripts() -> dict[str, str]:
    files = [str(path.relative_to(_STORES)) for path in _STORES.rglob("*.lua")]
    return {script_sha(file): script(file) for file in files}
