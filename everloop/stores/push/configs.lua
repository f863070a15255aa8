-- Push configs of a task (hash). What its fields mean stands in configs.py.
--
-- The first argument of each operation is the time to live in seconds.

-- then: field, config, config that is replaced ("": none), field of the position, position ("keep": as it is), how many
-- configs at most, field that stays. Returns 1, 0 if there are too many, -1 if another one was to be replaced.
operations['push.put'] = function(keys, arguments)
  local key, seconds, field, config, replaced, place, position, most, known = keys[1], unpack(arguments)
  local before = redis.call('HGET', key, field)
  if (before or '') ~= replaced then
    return -1
  end
  if not before then
    local count = 0
    for _, name in ipairs(redis.call('HKEYS', key)) do
      count = count + (name:sub(1, 7) == 'config:' and 1 or 0)
    end
    if count >= tonumber(most) then
      return 0
    end
  end
  redis.call('HSET', key, field, config, known, 1)
  if position ~= 'keep' then
    redis.call('HSET', key, place, position)
  end
  keep(key, seconds)
  return 1
end

-- then: field
operations['push.get'] = function(keys, arguments)
  local config = redis.call('HGET', keys[1], arguments[2])
  if config then
    keep(keys[1], arguments[1])
  end
  return config
end

-- then: field, config that has to be there, field of the position, position that has to be there, new one
-- Returns -1 if another config is there.
operations['push.advance'] = function(keys, arguments)
  local key, seconds, field, config, place, from, to = keys[1], unpack(arguments)
  if redis.call('HGET', key, field) ~= config then
    return -1
  end
  if redis.call('HGET', key, place) == from then
    redis.call('HSET', key, place, to)
    keep(key, seconds)
  end
  return 1
end
