"""Carries out a plan of faults, and measures the time to recovery."""

import asyncio
import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from tests.chaos.cluster import ClusterFaults
from tests.chaos.fleet import Fleet
from tests.chaos.model import Model, Mood
from tests.chaos.plan import Harm
from tests.support.rigs.deployment import Deployment
from tests.support.servers.processes import ServerProcess, redis_answers, temporal_answers, wait_until_answers
from tests.support.servers.redis_cluster import RedisCluster
from tests.support.servers.relay import Link
from tests.support.servers.rollback import RedisCopy
from tests.support.servers.webhook import Webhook

DELAY = 0.15
"""Seconds by which a delayed link is late, in each direction."""

AT_ONCE = 3
"""Limit of faults without recovery: on a slow machine the next one waits, and comes late."""

NO_ROOM, ALL_ROOM = 1, 0
"""Memory limits of Redis in bytes: none left, or unlimited."""

FOR_LONG = 10_000

DURABLE = (
    "everloop:artifact",
    "everloop:context:",
    "everloop:blob",
    "everloop:conversation",
)
"""Prefixes of keys whose only copy is in Redis: they stay when it is set back."""

RENEWED = 2.5
"""Seconds within which workers have renewed the leases of their calls."""

Heal = Callable[[], Awaitable[bool]]
"""Ends a fault, and returns True if there was an outage whose end can be awaited."""

_MOODS: dict[str, Mood] = {"slow": "slow", "overload": "overload", "break": "break", "tear": "tear"}


@dataclass(frozen=True)
class Site:
    """All targets of faults. `blobs` is a link to the folder of the blobs."""

    everloop: Deployment
    fleet: Fleet
    links: dict[str, Link]
    model: Model
    hook: Webhook
    blobs: Path


@dataclass
class Suffered:
    """A completed fault.

    `begun` and `ended` are seconds since the load began; `recovery` is the seconds from the end of the fault
    to the next success, None if there was no outage.
    """

    harm: Harm
    begun: float
    ended: float | None = None
    recovery: float | None = None


@dataclass
class Faults:
    """Carries faults out, a few at a time, and one for each target.

    `until`: seconds of the clock after which none begins. On a slow machine queued ones would otherwise harm
    an idle deployment.
    """

    site: Site
    clock: Callable[[], float]
    say: Callable[[str], None]
    until: float = math.inf
    suffered: list[Suffered] = field(default_factory=list[Suffered])
    problems: list[str] = field(default_factory=list[str])
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    _of_cluster: ClusterFaults | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if isinstance(self.site.everloop.valkey, RedisCluster):
            self._of_cluster = ClusterFaults(self.site.everloop.valkey)

    async def carry_out(self, plan: Sequence[Harm]) -> None:
        """Carry out a plan; when this returns, everything serves again."""
        async with asyncio.TaskGroup() as group:
            for harm in plan:
                await asyncio.sleep(max(harm.at - self.clock(), 0))
                group.create_task(self._suffer(harm))

    async def watch(self) -> None:
        """Restart processes that end without a fault, until cancelled."""
        servers = {"temporal": self.site.everloop.temporal, "valkey": self.site.everloop.valkey}
        while True:
            for name, server in servers.items():
                async with self._locks[name]:
                    if not server.is_running():
                        self.problems.append(f"{name} ended by itself and said last: {server.output[-300:]}")
                        server.start()
            for name, seat in self.site.fleet.seats.items():
                async with self._locks[name]:
                    if not seat.process.is_running():
                        # Temporal may go away between the connection of a worker and its first poll.
                        if "the worker could not begin" not in seat.news:
                            self.problems.append(f"{name} ended by itself; see {seat.log}")
                        await seat.start()
            await asyncio.sleep(1)

    async def _suffer(self, harm: Harm) -> None:
        async with self._slots, AsyncExitStack() as held:
            for target in self._targets(harm):
                await held.enter_async_context(self._locks[target])
            if self.clock() > self.until:
                return
            suffered = Suffered(harm, self.clock())
            self.suffered.append(suffered)
            self.say(str(harm))
            recover = await self._begin(harm)
            await asyncio.sleep(harm.length)
            suffered.ended = self.clock()
            begin = time.monotonic()
            if await recover():
                suffered.recovery = time.monotonic() - begin

    def _targets(self, harm: Harm) -> list[str]:
        """Return the targets that must have no other fault meanwhile."""
        if harm.how == "set back":  # a worker that died in that second could not renew its leases
            workers = sorted(name for name in self.site.fleet.seats if name.startswith("worker"))
            return [*workers, "workers-redis", "valkey"]
        # A shard without primary and replica has lost acknowledged writes.
        return ["valkey" if harm.target == "replica" else harm.target]

    async def _begin(self, harm: Harm) -> Heal:
        """Begin a fault, and return the function that heals it."""
        site = self.site
        if harm.target in site.fleet.seats:
            return await self._harm_process(harm)
        if harm.target in site.links:
            return self._harm_link(harm, site.links[harm.target])
        others: Mapping[str, Callable[[Harm], Awaitable[Heal]]] = {
            "temporal": self._harm_temporal,
            "valkey": self._fill_redis if harm.how == "fill" else self._harm_redis,
            "replica": self._harm_redis,
            "blobs": self._hide_blobs,
            "model": self._upset_model,
            "webhook": self._harm_webhook,
        }
        return await others[harm.target](harm)

    async def _harm_temporal(self, harm: Harm) -> Heal:
        address = self.site.everloop.temporal_address
        return self._harm_server(harm, self.site.everloop.temporal, lambda: temporal_answers(address))

    async def _harm_redis(self, harm: Harm) -> Heal:
        if self._of_cluster:
            return await self._of_cluster.begin(harm)
        url = self.site.everloop.redis_url
        if harm.how == "set back":
            return await self._set_back(url)
        return self._harm_server(harm, self.site.everloop.valkey, lambda: redis_answers(url))

    async def _set_back(self, url: str) -> Heal:
        copy = await RedisCopy.take(url, spared=DURABLE)

        async def bring_back() -> bool:
            await copy.bring_back()
            await asyncio.sleep(RENEWED)
            return False

        return bring_back

    def _is_temporal_harmed(self) -> bool:
        return any("temporal" in target and lock.locked() for target, lock in self._locks.items())

    async def _harm_process(self, harm: Harm) -> Heal:
        seat = self.site.fleet.seats[harm.target]
        if harm.how == "freeze":
            seat.freeze()

            async def thaw() -> bool:
                seat.thaw()
                await seat.until_ready()
                return True

            return thaw
        if harm.how == "kill":
            seat.kill()
        else:
            was_away = self._is_temporal_harmed()
            code = await seat.stop()
            # Without Temporal a worker cannot hand over its calls: it is killed in the end.
            if code and not (was_away or self._is_temporal_harmed()):
                self.problems.append(f"{seat.name} ended with exit code {code} at SIGTERM; see {seat.log}")

        async def start() -> bool:
            await seat.start()
            return True

        return start

    def _harm_server(self, harm: Harm, server: ServerProcess, answers: Callable[[], Awaitable[bool]]) -> Heal:
        if harm.how == "kill":
            server.kill()
        else:
            os.kill(server.pid, signal.SIGSTOP)

        async def heal() -> bool:
            if harm.how == "kill":
                server.start()
            else:
                os.kill(server.pid, signal.SIGCONT)
            await wait_until_answers(server, answers, harm.target)
            return True

        return heal

    def _harm_link(self, harm: Harm, link: Link) -> Heal:
        if harm.how == "cut":
            link.cut()
        elif harm.how == "hold":
            link.flows.clear()
        else:
            link.delay = DELAY

        async def heal() -> bool:
            link.delay = 0
            link.flows.set()
            return False

        return heal

    async def _fill_redis(self, _: Harm) -> Heal:
        await self._allow(NO_ROOM)

        async def empty() -> bool:
            await self._allow(ALL_ROOM)
            return False

        return empty

    async def _allow(self, size: int) -> None:
        async with connect_redis(self.site.everloop.redis_url, NO_CIPHER) as redis:
            await redis.config_set("maxmemory", size)

    async def _hide_blobs(self, _: Harm) -> Heal:
        """Make the folder of the blobs unusable for a while: all reads and writes fail."""
        folder = self.site.blobs.readlink()
        wall = folder.with_name("wall")
        wall.touch()
        _point(self.site.blobs, wall)

        async def give_back() -> bool:
            _point(self.site.blobs, folder)
            return False

        return give_back

    async def _upset_model(self, harm: Harm) -> Heal:
        self.site.model.mood = _MOODS[harm.how]

        async def calm() -> bool:
            self.site.model.mood = "well"
            return False

        return calm

    async def _harm_webhook(self, harm: Harm) -> Heal:
        hook = self.site.hook
        if harm.how == "away":
            await hook.stop()
        else:
            hook.script = [500 if harm.how == "break" else "hang"] * FOR_LONG

        async def heal() -> bool:
            if harm.how == "away":
                await hook.start()
            hook.script = []
            return False

        return heal


def _point(link: Path, folder: Path) -> None:
    """Repoint a symbolic link without a moment in which it is missing."""
    draft = link.with_name("draft-link")
    draft.symlink_to(folder)
    draft.replace(link)
