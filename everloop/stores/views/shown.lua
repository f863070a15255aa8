-- Reads a task as it is shown, and changes nothing.

local function usage(key)
  return redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) or 0
end

local OF_SHORT = {
  'task', 'status_run', 'status', 'last', 'lost', 'begun', 'drafts', 'artifact:response', 'tail:response', 'more', 'written',
}

local function is_short(of)  -- whether this is all that is shown of it
  local blocks = of['artifact:response'] and of['artifact:response']:match('^%S+ %S+ %S+ (%S+)')
  return not of.more and (not of.drafts or (of.drafts == 'response ' and blocks == '1'))
end

-- keys: view, history. arguments: how many bytes it may have, how many of the newest messages ('all': all).
-- Answers bytes, fields, messages behind those that stand in the fields, and ids of messages: instead of them where it
-- has more.
operations['shown.task'] = function(keys, arguments)
  local view, history = unpack(keys)
  local most, newest = tonumber(arguments[1]), arguments[2]
  local fields, of = {}, {}
  for n, value in ipairs(redis.call('HMGET', view, unpack(OF_SHORT))) do
    fields[2 * n - 1], fields[2 * n], of[OF_SHORT[n]] = OF_SHORT[n], value, value
  end
  local written = tonumber(of.written)
  if written and written <= most / 2 then  -- what Redis takes besides is less than that
    if is_short(of) then
      return {written, fields, {}, false}
    end
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
  return {size, {unpack(fields, 1, 10)}, {}, redis.call('HGET', view, 'ids') or ''}
end

-- keys: what was kept of a message that was answered without a task.
operations['shown.route'] = function(keys)
  return redis.call('GET', keys[1])
end
