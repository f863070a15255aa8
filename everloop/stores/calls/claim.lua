-- Claims a call for an attempt, unless another one holds it.
--
-- KEYS    records, outcomes, registry
-- ARGV    call, token, seconds; 1 if the call may be repeated; order; number of the attempt by Temporal's count;
--         milliseconds of the lease; position of the reply that asks for the call, if another attempt may have started
--         it (else ''); call whose stored value is read
-- Answer  claim, number of attempts, 1 if a lost call may be repeated, outcome of a call that has ended, stored value.
--         The lease of a lost call that may be repeated has the claim AGAIN
local records, outcomes, registry = unpack(KEYS)
local call, token, seconds, repeats, order, attempt, length, position, kept = unpack(ARGV)
local function has_reply()  -- true if a call of the model for this position was ever claimed
  for _, name in ipairs(redis.call('HKEYS', records)) do
    if name:match('^reply %S+ (%d+)%.%d+$') == position then return true end
  end
  return false
end
local lease = lease_of(records, call)
if not lease then
  -- Without a record of the reply that asks for the call, Redis was emptied, and a started call is lost.
  local is_lost = position ~= '' and not has_reply()
  lease = {holder = is_lost and '?' or '', till = '', claim = '', order = '', attempts = 0, repeats = '0'}
end
local is_done = lease.claim == 'DONE'
if precedes(order, lease.order) then return {'OVERTAKEN', lease.attempts, lease.repeats} end
if not is_done and lease.holder ~= token and now() < (tonumber(lease.till) or 0) then
  if tonumber(lease.till) > now() + lease.length then  -- the clock was put back: limit the lease to its length
    lease.till = now() + lease.length
    write_lease(records, call, lease)
  end
  return {'HELD', lease.attempts, lease.repeats}
end
if lease.holder ~= token then  -- otherwise the answer to the same claim was lost
  local is_first = lease.holder == ''
  lease.repeats = (is_first or lease.repeats == '1') and repeats or '0'
  lease.claim = is_done and 'DONE' or is_first and 'FIRST' or lease.repeats == '1' and 'AGAIN' or 'LOST'
  lease.attempts = math.max(lease.attempts + 1, tonumber(attempt))
end
lease.holder, lease.order, lease.till, lease.length = token, order, is_done and '' or now() + length, length
write_lease(records, call, lease)
keep(registry, records, seconds)
return {
  is_done and 'FINISHED' or lease.claim == 'FIRST' and 'FIRST' or 'LOST', lease.attempts, lease.repeats,
  is_done and redis.call('HGET', outcomes, call), redis.call('HGET', records, 'kept ' .. kept)}
