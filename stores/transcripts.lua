-- The transcript of one run (hash: position → message), and attempts at its model calls (hash).

local function write(command, key, arguments, first)  -- positions and messages in turn
  for n = first, #arguments, 2 do
    redis.call(command, key, arguments[n], arguments[n + 1])
  end
end

local function read(transcript, first, last)  -- positions and messages in turn
  if first == 0 then
    return redis.call('HGETALL', transcript)
  end
  local found = {}
  for position = first, last do
    local message = redis.call('HGET', transcript, position)
    if message then
      found[#found + 1] = tostring(position)
      found[#found + 1] = message
    end
  end
  return found
end

local function copy_missing(from, to, start)  -- the positions below `start` that the run does not have
  for _, position in ipairs(redis.call('HKEYS', from)) do
    if tonumber(position) < start and redis.call('HEXISTS', to, position) == 0 then
      redis.call('HSET', to, position, redis.call('HGET', from, position))
    end
  end
end

-- An attempt that was frozen while it asked, and asks again when it goes on, would count as the newest.
local function count_attempt(attempts, record, seconds, call, least, token, order)
  local holder = redis.call('HGET', record, 'holder')
  if holder and holder ~= token then
    return nil
  end
  local known = redis.call('HMGET', attempts, call, call .. ' by', call .. ' order')
  local count, last, newest = unpack(known)
  if newest and newest > order then
    return nil
  end
  if last ~= token then
    count = math.max(tonumber(count or '0') + 1, tonumber(least))
    redis.call('HSET', attempts, call, count, call .. ' by', token, call .. ' order', order)
  end
  keep(attempts, seconds)
  return tonumber(count)
end

-- keys: transcript, attempts, that of the run before or "" , record of the call
-- arguments: time to live in seconds, first position that is written; call ("": no attempt at one), Temporal's
-- count, token of the attempt, its order; first position that is read, last one; then positions and messages
operations['transcript.open'] = function(keys, arguments)
  local transcript, attempts, previous, record = unpack(keys)
  local seconds, start, call, least, token, order, first, last = unpack(arguments, 1, 8)
  local count = 1
  if call ~= '' then
    count = count_attempt(attempts, record, seconds, call, least, token, order)
    if not count then
      return false, true
    end
  end
  if previous ~= transcript then
    copy_missing(previous, transcript, tonumber(start))
  end
  write('HSET', transcript, arguments, 9)
  keep(transcript, seconds)
  return {count, read(transcript, tonumber(first), tonumber(last))}
end

-- keys: transcript, attempts, record of the call
-- arguments: time to live in seconds, order of the attempt, "anew" (nothing else stays) or "", then as above
operations['transcript.put'] = function(keys, arguments)
  if is_late(keys[3], arguments[2]) then
    return false, true
  end
  if arguments[3] == 'anew' then
    redis.call('DEL', keys[1], keys[2])
  end
  write('HSET', keys[1], arguments, 4)
  keep(keys[1], arguments[1])
  return 1
end

-- keys: transcript, record of the call
-- arguments: time to live in seconds, order of the attempt, position, message; returns the message that stands there
operations['transcript.add'] = function(keys, arguments)
  local seconds, order, position, message = unpack(arguments)
  if is_late(keys[2], order) then
    return false, true
  end
  redis.call('HSETNX', keys[1], position, message)
  keep(keys[1], seconds)
  return redis.call('HGET', keys[1], position)
end
