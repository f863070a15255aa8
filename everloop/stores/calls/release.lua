-- Releases a call without an outcome.
--
-- KEYS    records
-- ARGV    call, token, milliseconds for which no attempt gets it, 1 if this attempt counts
-- Answer  1 if this attempt held the call
local records, call, token, delay, counts = KEYS[1], unpack(ARGV)
local lease = lease_of(records, call)
if not lease or lease.holder ~= token then return false end
lease.claim = lease.claim == 'DONE' and 'DONE' or ''
lease.holder, lease.till, lease.length = '', tonumber(delay) > 0 and now() + delay or '', delay
lease.attempts = lease.attempts - (1 - counts)
write_lease(records, call, lease)
return 1
