-- Extends the lease of a call from now on. A call without a record is claimed again.
--
-- KEYS    records, registry
-- ARGV    call, token, seconds, 1 if the call may be repeated, milliseconds of the lease
-- Answer  1 if this attempt holds the call, else 0
local records, registry = unpack(KEYS)
local call, token, seconds, repeats, length = unpack(ARGV)
local lease = lease_of(records, call) or {holder = token, claim = 'LOST', order = '', attempts = 1, repeats = repeats}
if lease.holder ~= token then return 0 end
if lease.claim ~= 'DONE' then
  lease.till, lease.length = now() + length, length
  write_lease(records, call, lease)
  keep(registry, records, seconds)
end
return 1
