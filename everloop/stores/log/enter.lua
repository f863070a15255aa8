-- Replaces the rows of a task in the lists of its owner, unless another process has replaced them.
--
-- KEYS    rows, announced tasks; with a change of the task's context also the contexts of the owner and the record of this one
-- ARGV    task id; its expected row and its expected field of the record ('': none); rows to remove and rows to add, one a line;
--         for a context: the new field; its word and time in the list of contexts; its title ('': none); change of the number
--         of open tasks; seconds that the record lives after the end of the last task
-- Answer  the stored row and field; if they differ from the expected ones, nothing has changed
local rows, announced, contexts, record = unpack(KEYS)
local task, row, field, removed, added, noted, context, at, title, opened, seconds = unpack(ARGV)
local found = {
  redis.call('ZRANGEBYLEX', rows, '[t ' .. task .. ' ', '(t ' .. task .. '!', 'LIMIT', 0, 1)[1] or '',
  record and redis.call('HGET', record, 'task:' .. task) or '',
}
if found[1] ~= row or found[2] ~= field then return found end
for name in removed:gmatch('[^\n]+') do redis.call('ZREM', rows, name) end
for name in added:gmatch('[^\n]+') do redis.call('ZADD', rows, 0, name) end
redis.call('ZREM', announced, task)  -- it counts by itself from now on
if not record then return found end
redis.call('ZADD', contexts, 'GT', at, context)
redis.call('HSET', record, 'task:' .. task, noted)
redis.call('HSETNX', record, 'created', at)
if title ~= '' and redis.call('HSETNX', record, 'title', title) == 1 then redis.call('HSET', record, 'titled', task) end
if redis.call('HINCRBY', record, 'open', opened) > 0 then
  redis.call('PERSIST', record)
elseif redis.call('TTL', record) < tonumber(seconds) then
  redis.call('EXPIRE', record, seconds)
end
return found
