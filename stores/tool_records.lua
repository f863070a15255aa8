-- Records of calls. What their fields mean stands in tool_records.py.

local function is_ours(key, token)  -- or nobody's, where Redis was emptied
  local holder = redis.call('HGET', key, 'holder')
  return not holder or holder == token
end

-- arguments: token, time to live in seconds, milliseconds of the lease, order
operations['record.claim'] = function(keys, arguments)
  local key, token, seconds, lease, our_order = keys[1], unpack(arguments)
  local fields = redis.call('HMGET', key, 'outcome', 'holder', 'until', 'claim', 'order')
  local outcome, holder, till, claim, order = unpack(fields)
  if order and order > our_order then
    return 'OVERTAKEN', true
  end
  if outcome then  -- whoever is still at work on it was overtaken
    redis.call('HSET', key, 'holder', token, 'order', our_order)
    keep(key, seconds)
    return 'FINISHED', true
  end
  if till and holder ~= token and now() < tonumber(till) then
    return 'HELD', true
  end
  if holder ~= token then  -- else the answer to the same claim was lost
    claim = (holder and holder ~= '') and 'LOST' or 'FIRST'
  end
  redis.call('HSET', key, 'holder', token, 'until', now() + lease, 'claim', claim, 'order', our_order)
  keep(key, seconds)
  return claim
end

-- arguments: token, time to live in seconds, milliseconds of the lease
operations['record.renew'] = function(keys, arguments)
  local key, token, seconds, lease = keys[1], unpack(arguments)
  if not is_ours(key, token) then
    return 0, true
  end
  if redis.call('HEXISTS', key, 'outcome') == 0 then
    redis.call('HSETNX', key, 'claim', 'LOST')
    redis.call('HSET', key, 'holder', token, 'until', now() + lease)
    keep(key, seconds)
  end
  return 1
end

-- arguments: token, time to live in seconds, that of a record that says nothing else, milliseconds to be held for
operations['record.release'] = function(keys, arguments)
  local key, token, seconds, released, delay = keys[1], unpack(arguments)
  if redis.call('HGET', key, 'holder') ~= token then
    return
  end
  redis.call('HSET', key, 'holder', '')
  redis.call('HDEL', key, 'until', 'claim')
  if tonumber(delay) > 0 then
    redis.call('HSET', key, 'until', now() + delay)
  end
  if redis.call('HLEN', key) == 2 then  -- that, and the order
    redis.call('EXPIRE', key, released)
    keep(key, nil)
    redis.call('HDEL', task_keys, key)  -- nothing that has to live as long as the task
  else
    keep(key, seconds)
  end
end

-- arguments: token, time to live in seconds, order
operations['record.revoke'] = function(keys, arguments)
  local key, token, seconds, order = keys[1], unpack(arguments)
  if redis.call('HEXISTS', key, 'outcome') == 1 then
    return
  end
  redis.call('HSET', key, 'holder', token, 'until', 0, 'claim', 'LOST', 'order', order)
  keep(key, seconds)
end

-- arguments: token, time to live in seconds, outcome; returns the outcome that stands, nil if the call is another's
operations['record.finish'] = function(keys, arguments)
  local key, token, seconds, outcome = keys[1], unpack(arguments)
  if not is_ours(key, token) then
    return false, true
  end
  local standing = redis.call('HGET', key, 'outcome')
  if standing then
    return standing
  end
  redis.call('HSET', key, 'holder', token, 'outcome', outcome)
  redis.call('HDEL', key, 'until', 'claim')
  keep(key, seconds)
  return outcome
end

-- keys: the record of the phase, that of the call
-- arguments: token, time to live in seconds, value (empty: none any more)
operations['record.keep'] = function(keys, arguments)
  local token, seconds, value = unpack(arguments)
  if not is_ours(keys[1], token) then
    return false, true
  end
  if value == '' then
    redis.call('HDEL', keys[2], 'kept')
  else
    redis.call('HSET', keys[2], 'kept', value)
    keep(keys[2], seconds)
  end
  return 1
end
