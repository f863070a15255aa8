"""Removes all that Redis keeps of tasks."""

from collections.abc import Sequence
from typing import cast

from redis.asyncio import Redis

from everloop.stores.keys import (
    history_key,
    outcomes_key,
    push_configs_key,
    records_key,
    route_key,
    secrets_key,
    stream_key,
    task_keys_key,
    view_key,
)
from everloop.stores.views.codec import word
from everloop.stores.views.interface import START
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.events import ArtifactChunk

_FORGET_ARTIFACT = """
-- KEYS: view. ARGV: the artifact, as a word. Returns whether the view had it.
local draft = redis.call('HGET', KEYS[1], 'artifact:' .. ARGV[1])
if not draft then
  return 0
end
local fields = {'artifact:' .. ARGV[1], 'tail:' .. ARGV[1]}
for number = 1, draft:match('^%S+ %S+ %S+ (%d+)') - 1 do
  fields[#fields + 1] = 'block:' .. number .. ':' .. ARGV[1]
end
for _, field in ipairs(fields) do
  redis.call('HDEL', KEYS[1], field)
end
local left = {}
for each in (redis.call('HGET', KEYS[1], 'drafts') or ''):gmatch('%S+') do
  if each ~= ARGV[1] then
    left[#left + 1] = each .. ' '
  end
end
redis.call('HSET', KEYS[1], 'drafts', table.concat(left))
return 1
"""


_REMOVE_KEYS = """
-- KEYS: hash of keys, view, and what else a client's task may have. Returns how many there were.
local named, removed = {}, 0
for name in (redis.call('HGET', KEYS[2], 'kept') or ''):gmatch('(%S+) %S+') do
  named[#named + 1] = KEYS[2]:match('^(.*)view$') .. name
end
for _, keys in ipairs({redis.call('HKEYS', KEYS[1]), named, KEYS}) do
  for _, key in ipairs(keys) do
    removed = removed + redis.call('UNLINK', key)
  end
end
return removed
"""

_KEYS = (
    task_keys_key,
    view_key,
    history_key,
    stream_key,
    route_key,
    records_key,
    outcomes_key,
    secrets_key,
    push_configs_key,
)
"""Of each client's task. What has others in their names, transcripts, is named by the view or the hash."""


class TaskRemoval:
    """Removes what Redis keeps in the hash slots of tasks. It is safe to repeat."""

    def __init__(self, redis: Redis, views: TaskViews) -> None:
        self._redis = redis
        self._views = views
        self._forget_artifact = redis.register_script(_FORGET_ARTIFACT)
        self._remove_keys = redis.register_script(_REMOVE_KEYS)

    async def keys_of(self, task_ids: Sequence[str]) -> int:
        """Remove the keys of clients' tasks and their sub-agents; return how many there were."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                await self._remove_keys(keys=[name(task_id) for name in _KEYS], client=pipeline)
            return sum(cast("list[int]", await pipeline.execute()))

    async def artifact_of(self, task_id: str, artifact_id: str) -> int:
        """Remove an artifact from the view of a task, and from its stream; return from how many places."""
        removed = int(await self._forget_artifact(keys=[view_key(task_id)], args=[word(artifact_id)]))
        position = START
        while page := await self._views.read({task_id: position}, wait=0):
            position = page[-1].position
            told = [each.position for each in page if _is_of(each.event, artifact_id)]
            removed += await self._views.forget_events(task_id, told)
        return removed


def _is_of(event: object, artifact_id: str) -> bool:
    return isinstance(event, ArtifactChunk) and event.artifact_id == artifact_id
