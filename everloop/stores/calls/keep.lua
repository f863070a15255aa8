-- Stores a value for a call, replacing the last one.
--
-- KEYS    records, registry
-- ARGV    call of the lease, token, seconds, call of the value, value ('' deletes it)
-- Answer  OVERTAKEN, or 1
local records, registry = unpack(KEYS)
local leased, token, seconds, call, value = unpack(ARGV)
local lease = lease_of(records, leased)
if lease and lease.holder ~= token then return OVERTAKEN end
if value == '' then
  redis.call('HDEL', records, 'kept ' .. call)
else
  redis.call('HSET', records, 'kept ' .. call, value)
  keep(registry, records, seconds)
end
return 1
