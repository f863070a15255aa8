-- Writes the newest messages of a transcript, and reads it.
--
-- KEYS    transcript, that of the previous run (or the same), records, registry
-- ARGV    call, token, order and claims of a lease; seconds; first position to write; first position to read, and the
--         one behind the last; positions and messages to write, in turn
-- Answer  OVERTAKEN, false (`refusal`), or the messages from the first one to read up to the first one written, and the
--         one behind the last
local transcript, previous, records, registry = unpack(KEYS)
local call, token, order, claims, seconds, start, first, last = unpack(ARGV, 1, 8)
local refused = refusal(records, call, token, order, claims)
if refused ~= nil then return refused end
start = tonumber(start)
if previous ~= transcript then  -- copy messages that the new run lacks
  local before = redis.call('HGETALL', previous)
  for n = 1, #before, 2 do
    if tonumber(before[n]) < start then redis.call('HSETNX', transcript, before[n], before[n + 1]) end
  end
end
for n = 9, #ARGV, 2 do redis.call('HSET', transcript, ARGV[n], ARGV[n + 1]) end
if #ARGV > 8 or previous ~= transcript then keep(registry, transcript, seconds) end
local found = {}
for position = first, start - 1 do found[#found + 1] = redis.call('HGET', transcript, position) end
found[#found + 1] = redis.call('HGET', transcript, last)
return found
