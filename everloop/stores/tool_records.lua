-- Records of calls (hash). Fields: <call> → lease; "kept <call>". Outcomes (hash): <call> → what it came to, which is
-- forgotten first: that a call has ended stands in its lease.
--
-- The first arguments of each operation: call, token of the attempt, time to live in seconds, 1 if the call may be
-- repeated.

local DONE = 'DONE'  -- the claim of a lease whose call has an outcome

local function has_reply(records, position)  -- whether a call of the model for this position was ever claimed
  for _, call in ipairs(redis.call('HKEYS', records)) do
    if call:match('^reply %S+ (%d+)%.%d+$') == position then
      return true
    end
  end
  return false
end

local function is_ours(lease, token)  -- or nobody's, where Redis was emptied
  return not lease or lease.holder == token
end

-- then, with outcomes as the second key: order, attempt by Temporal's count, milliseconds of the lease, 1 if the script
-- goes on for a call that was lost; where another attempt may have begun it, the position of the reply that asks for it.
-- Returns the claim, how many attempts there were, 1 if a lost call may be repeated, and the outcome if there is one.
operations['record.claim'] = function(keys, arguments)
  local records, call, token, seconds, repeats, order, attempt, length, goes_on, position = keys[1], unpack(arguments)
  if attempt == '1' and position == '' then  -- as a rule nobody knows of the call yet
    local first = {
      holder = token, till = now() + length, claim = 'FIRST', order = order, attempts = 1, repeats = repeats,
      length = length,
    }
    if write_first_lease(records, call, first, seconds) then
      return {'FIRST', 1, 1}
    end
  end
  local lease = lease_of(records, call)
  if not lease then
    -- Where the reply that asks for the call is not known either, Redis was emptied, and what had been begun is lost.
    local is_lost = position ~= '' and not has_reply(records, position)
    lease = {holder = is_lost and '?' or '', till = '', claim = '', order = '', attempts = 0, repeats = '0'}
  end
  local is_done = lease.claim == DONE
  if precedes(order, lease.order) then
    return {'OVERTAKEN', lease.attempts, lease.repeats}, true
  elseif not is_done and lease.holder ~= token and now() < (tonumber(lease.till) or 0) then
    if tonumber(lease.till) > now() + lease.length then  -- the clock was put back: it ends in its length from now at the latest
      lease.till = now() + lease.length
      write_lease(records, call, lease, seconds)
    end
    return {'HELD', lease.attempts, lease.repeats}, true
  end
  if lease.holder ~= token then  -- else the answer to the same claim was lost
    lease.claim = is_done and DONE or lease.holder == '' and 'FIRST' or 'LOST'
    lease.repeats = lease.claim == 'FIRST' and repeats or lease.repeats == '1' and repeats or '0'
    lease.attempts = math.max(lease.attempts + 1, tonumber(attempt))
  end
  lease.holder, lease.order, lease.till, lease.length = token, order, is_done and '' or now() + length, length
  write_lease(records, call, lease, seconds)
  if is_done then  -- whoever is still at work on it was overtaken
    return {'FINISHED', lease.attempts, lease.repeats, redis.call('HGET', keys[2], call) or nil}, true
  end
  return {lease.claim, lease.attempts, lease.repeats}, lease.claim == 'LOST' and goes_on == '0'
end

-- then: milliseconds of the lease
operations['record.renew'] = function(keys, arguments)
  local records, call, token, seconds, repeats, length = keys[1], unpack(arguments)
  local lease = lease_of(records, call)
  if not is_ours(lease, token) then
    return 0, true
  end
  lease = lease or {holder = token, claim = 'LOST', order = '', attempts = 1, repeats = repeats}
  if lease.claim ~= DONE then
    lease.till, lease.length = now() + length, length
    write_lease(records, call, lease, seconds)
  end
  return 1
end

-- then: milliseconds to be held for, 1 if it counts as an attempt
operations['record.release'] = function(keys, arguments)
  local records, call, token, seconds, _, delay, counts = keys[1], unpack(arguments)
  local lease = lease_of(records, call)
  if not lease or lease.holder ~= token then
    return
  end
  lease.claim = lease.claim == DONE and DONE or ''
  lease.holder, lease.till, lease.length = '', tonumber(delay) > 0 and now() + delay or '', delay
  lease.attempts = lease.attempts - (1 - counts)
  write_lease(records, call, lease, seconds)
end

-- then: order
operations['record.revoke'] = function(keys, arguments)
  local records, call, token, seconds, repeats, order = keys[1], unpack(arguments)
  local lease = lease_of(records, call) or {attempts = 0, repeats = repeats}
  if lease.claim ~= DONE then
    lease.holder, lease.till, lease.claim, lease.order = token, '0', 'LOST', order
    write_lease(records, call, lease, seconds)
  end
end

-- then, with outcomes as the second key: outcome, its time to live in seconds
-- Returns the outcome that stands, if that is another one, which ends the script.
operations['record.finish'] = function(keys, arguments)
  local records, outcomes, call, token, seconds, repeats, outcome, life = keys[1], keys[2], unpack(arguments)
  local lease = lease_of(records, call)
  if not is_ours(lease, token) then
    return false, OVERTAKEN
  end
  if redis.call('HSETNX', outcomes, call, outcome) == 0 then
    local standing = redis.call('HGET', outcomes, call)
    if standing == outcome then
      return false
    end
    return standing, true
  end
  lease = lease or {holder = token, order = '', attempts = 1, repeats = repeats}
  lease.till, lease.claim = '', DONE
  keep(outcomes, life)
  write_lease(records, call, lease, seconds)
  return false
end

-- then: the call without its phase, value (empty: none any more)
operations['record.keep'] = function(keys, arguments)
  local records, phase, token, seconds, _, call, value = keys[1], unpack(arguments)
  if not is_ours(lease_of(records, phase), token) then
    return false, OVERTAKEN
  end
  if value == '' then
    redis.call('HDEL', records, 'kept ' .. call)
  else
    redis.call('HSET', records, 'kept ' .. call, value)
    keep(records, seconds)
  end
  values[records .. ' ' .. call] = value ~= '' and value
  return 1
end

operations['record.kept'] = function(keys, arguments)
  local _, value = read_record(keys[1], arguments[1])
  return value
end

-- Secrets that tools accept (a hash of its own). What its fields mean stands in secrets.py.

-- arguments: time to live in seconds, field of what is brought, secret
operations['record.bring_secret'] = function(keys, arguments)
  redis.call('HSET', keys[1], arguments[2], arguments[3])
  keep(keys[1], arguments[1])
end

-- arguments: fields of what was brought, of what is accepted, and of who was accepted. It brings no task back.
operations['record.accept_secret'] = function(keys, arguments)
  local brought = redis.call('HGET', keys[1], arguments[1])
  if brought and redis.call('HSETNX', keys[1], arguments[3], 1) == 1 then
    redis.call('HSET', keys[1], arguments[2], brought)
  end
end
