-- Reads the snapshot of a task and the log entries after it.
--
-- KEYS    head, log, snapshot
-- ARGV    maximum of bytes; of a larger task, only the head is read
-- Answer  bytes; identity, run and event of the last status, last position, '1' if content is lost, bytes of the log; snapshot,
--         entries after it; for a larger task, false twice in place of these two, then the ids of its messages
local head, log, snapshot = unpack(KEYS)
local of = redis.call('HMGET', head, 'task', 'status_run', 'event', 'last', 'lost', 'tail')
local size = (tonumber(of[6]) or 0) + redis.call('HSTRLEN', snapshot, 'view')
if size > tonumber(ARGV[1]) then return {size, of, false, false, redis.call('HGET', head, 'ids') or ''} end
local position, view = unpack(redis.call('HMGET', snapshot, 'position', 'view'))
return {size, of, view, redis.call('XRANGE', log, position and '(' .. position or '-', '+')}
