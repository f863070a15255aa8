-- Writes a message into a transcript unless the position is taken.
--
-- KEYS    transcript, records, registry
-- ARGV    call, token, order and claims of a lease; seconds; position, message
-- Answer  OVERTAKEN, false (`refusal`), 1, or the other message
local transcript, records, registry = unpack(KEYS)
local call, token, order, claims, seconds, position, message = unpack(ARGV)
local refused = refusal(records, call, token, order, claims)
if refused ~= nil then return refused end
local is_new = redis.call('HSETNX', transcript, position, message) == 1
keep(registry, transcript, seconds)
local standing = not is_new and redis.call('HGET', transcript, position)
return standing and standing ~= message and standing or 1
