-- Reads a task as it is shown, and changes nothing.

local function usage(key)
  return redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) or 0
end

-- keys: view, history. arguments: how many bytes it may have, how many of the newest messages ('all': all).
-- Answers bytes, fields, messages, and ids of messages: instead of them where it has more.
operations['shown.task'] = function(keys, arguments)
  local view, history = unpack(keys)
  local most, newest = tonumber(arguments[1]), arguments[2]
  local written = tonumber(redis.call('HGET', view, 'written'))
  if written and written <= most / 2 then  -- what Redis takes besides is less than that
    local first = newest == 'all' and 0 or newest == '0' and 1 or -newest
    local last = newest == '0' and 0 or -1
    return {written, redis.call('HGETALL', view), redis.call('LRANGE', history, first, last), false}
  end
  local size, messages = usage(view), nil
  if newest == 'all' then
    size = size + usage(history)
  else
    messages = newest == '0' and {} or redis.call('LRANGE', history, '-' .. newest, -1)
    for _, message in ipairs(messages) do
      size = size + #message
    end
  end
  if size <= most then
    messages = messages or redis.call('LRANGE', history, 0, -1)
    return {size, redis.call('HGETALL', view), messages, false}
  end
  local fields = {}
  for n, name in ipairs({'task', 'status_run', 'status', 'last', 'lost'}) do
    fields[2 * n - 1], fields[2 * n] = name, redis.call('HGET', view, name)
  end
  return {size, fields, {}, redis.call('HGET', view, 'ids') or ''}
end

-- keys: what was kept of a message that was answered without a task.
operations['shown.route'] = function(keys)
  return redis.call('GET', keys[1])
end
