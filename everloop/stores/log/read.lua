-- Reads what a task's snapshot and the log behind it have.
--
-- KEYS    head, log, snapshot
-- ARGV    bytes that it may have; of a larger one comes its head alone
-- Answer  bytes; identity, run and event of the last status, last position, whether content is lost; snapshot, entries after
--         it; or of a larger one, in place of these two, the ids of its messages
local head, log, snapshot = unpack(KEYS)
local of = redis.call('HMGET', head, 'task', 'status_run', 'event', 'last', 'lost', 'tail')
local size = (tonumber(of[6]) or 0) + redis.call('HSTRLEN', snapshot, 'view')
if size > tonumber(ARGV[1]) then return {size, of, false, false, redis.call('HGET', head, 'ids') or ''} end
local position, view = unpack(redis.call('HMGET', snapshot, 'position', 'view'))
return {size, of, view, redis.call('XRANGE', log, position and '(' .. position or '-', '+')}
