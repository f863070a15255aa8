"""A Redis whose clock goes wrong: scripts read another time than the server has."""

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

_TIME = "redis.call('TIME')"


class FastClock(Redis):
    """The same database, of which scripts read a clock that is `ahead`, and may be put back meanwhile."""

    def __init__(self, redis: Redis, ahead: timedelta = timedelta()) -> None:
        super().__init__(connection_pool=redis.connection_pool)
        self.ahead = ahead
        self.is_away = False
        """Whether it answers no script any more."""
        self.scripts = 0
        """How many scripts were run."""

    def register_script(self, script: Any) -> Any:  # noqa: ANN401 -- as of redis-py
        """Return the script, which reads the time as it goes when it is run."""

        def run(**arguments: Any) -> Awaitable[object]:  # noqa: ANN401 -- as of redis-py
            if self.is_away:
                raise RedisConnectionError
            self.scripts += 1
            seconds = round(self.ahead.total_seconds())
            time = f"(function(t) t[1] = t[1] + {seconds} return t end)({_TIME})"
            return super(FastClock, self).register_script(script.replace(_TIME, time))(**arguments)

        return run
