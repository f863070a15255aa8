-- Records the outcome of a call.
--
-- KEYS    records, outcomes, registry
-- ARGV    call, token, seconds, 1 if the call may be repeated, outcome, time to live of the outcome in seconds
-- Answer  OVERTAKEN, the outcome that was recorded before, or 1
local records, outcomes, registry = unpack(KEYS)
local call, token, seconds, repeats, outcome, known_seconds = unpack(ARGV)
local lease = lease_of(records, call)
if lease and lease.holder ~= token then return OVERTAKEN end
if redis.call('HSETNX', outcomes, call, outcome) == 0 then
  local standing = redis.call('HGET', outcomes, call)
  if standing ~= outcome then return standing end
end
lease = lease or {holder = token, order = '', attempts = 1, repeats = repeats}
lease.till, lease.claim = '', 'DONE'
write_lease(records, call, lease)
keep(registry, records, seconds)
keep(registry, outcomes, known_seconds)
return 1
