-- Appends the messages of a task to a conversation, once for each task.
--
-- KEYS    messages, positions, summaries
-- ARGV    task id, seconds that the conversation lives, maximum of stored messages, messages
-- Answer  number of fields of the positions; nothing if the task has appended before
local messages, positions = KEYS[1], KEYS[2]
local task = 'task:' .. ARGV[1]
local start, kept, life, known = unpack(redis.call('HMGET', positions, 'start', 'kept', 'life', task))
if known then return end
local first, count = tonumber(start or 0), 0
for n = 4, #ARGV, 1000 do
  count = redis.call('RPUSH', messages, unpack(ARGV, n, math.min(n + 999, #ARGV)))
end
local position, surplus = first + count - (#ARGV - 3), count - tonumber(ARGV[3])
if surplus > 0 then
  redis.call('LTRIM', messages, surplus, -1)
  first = first + surplus
end
local seconds = math.max(ARGV[2], life or 0)
redis.call('HSET', positions, 'start', first, 'kept', seconds, task, position)
for n = 1, kept and 3 or 2 do redis.call('EXPIRE', KEYS[n], seconds) end  -- a new one has no summaries
return redis.call('HLEN', positions)
