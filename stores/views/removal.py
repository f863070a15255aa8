"""Removes all that Redis keeps of tasks, whatever it is."""

from collections.abc import Sequence

from redis.asyncio import Redis

from everloop.runtime.redis import literal, remove_matching
from everloop.stores.keys import TASK_PREFIX, root_of_key, view_key
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
    left[#left + 1] = each
  end
end
redis.call('HSET', KEYS[1], 'drafts', table.concat(left, ' '))
return 1
"""


class TaskRemoval:
    """Looks through all keys that there are: nobody has a list of those of a task. It is safe to repeat."""

    def __init__(self, redis: Redis, views: TaskViews) -> None:
        self._redis = redis
        self._views = views
        self._forget_artifact = redis.register_script(_FORGET_ARTIFACT)

    async def keys_of(self, task_ids: Sequence[str]) -> int:
        """Remove the keys of clients' tasks and their sub-agents; return how many there were."""
        meant = frozenset(task_ids)
        one = literal(task_ids[0]) if len(meant) == 1 else ""
        match = f"{TASK_PREFIX}{one}}}*" if one else f"{TASK_PREFIX}*"
        return await remove_matching(self._redis, match, lambda key: root_of_key(key) in meant)

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
