-- Writes messages into a transcript, over existing ones.
--
-- KEYS    transcript, records, registry
-- ARGV    call, token, order and claims of a lease; seconds; 1 to delete all others; positions and messages in turn
-- Answer  OVERTAKEN, false (`refusal`), or 1
local transcript, records, registry = unpack(KEYS)
local call, token, order, claims, seconds, replaces = unpack(ARGV, 1, 6)
local refused = refusal(records, call, token, order, claims)
if refused ~= nil then return refused end
if replaces == '1' then redis.call('DEL', transcript) end
for n = 7, #ARGV, 2 do redis.call('HSET', transcript, ARGV[n], ARGV[n + 1]) end
keep(registry, transcript, seconds)
return 1
