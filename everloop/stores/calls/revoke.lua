-- Takes a call without an outcome from the attempt that holds it.
--
-- KEYS    records, registry
-- ARGV    call, token and order of the attempt that takes it, seconds, 1 if the call may be repeated
-- Answer  1
local records, registry = unpack(KEYS)
local call, token, order, seconds, repeats = unpack(ARGV)
local lease = lease_of(records, call) or {attempts = 0, repeats = repeats}
if lease.claim ~= 'DONE' then
  lease.holder, lease.till, lease.claim, lease.order = token, '0', 'LOST', order
  write_lease(records, call, lease)
  keep(registry, records, seconds)
end
return 1
