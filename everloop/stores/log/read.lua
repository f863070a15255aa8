-- Reads what a task's snapshot and the log behind it have.
--
-- KEYS    head, log, snapshot
-- ARGV    bytes that it may have; of a larger one comes its head alone
-- Answer  bytes; identity, status and its event, last position, whether statuses were lost; snapshot, entries behind it; or of
--         a larger one, in place of these two, the ids of its messages
local head, log, snapshot = unpack(KEYS)
local of = redis.call('HMGET', head, 'task', 'status', 'event', 'last', 'lost', 'tail', 'covered')
local size = (tonumber(of[6]) or 0) + (tonumber(of[7]) or 0)
if size > tonumber(ARGV[1]) then return {size, of, false, false, redis.call('HGET', head, 'ids') or ''} end
local position, view = unpack(redis.call('HMGET', snapshot, 'position', 'view'))
return {size, of, view, redis.call('XRANGE', log, position and '(' .. position or '-', '+')}
