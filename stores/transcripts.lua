-- The transcript of one run (hash: position → message).

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

-- The first argument of each operation is the time to live in seconds; positions and messages are the last, in turn.

-- keys: transcript, that of the run before, or else the same
-- arguments: first position that is written; first one that is read, and the one behind the last; 1 if the trip ends
-- unless just these are there
operations['transcript.open'] = function(keys, arguments)
  local transcript, previous = unpack(keys)
  local seconds, start, first, last, is_only = unpack(arguments, 1, 5)
  if previous ~= transcript then
    copy_missing(previous, transcript, tonumber(start))
  end
  write('HSET', transcript, arguments, 6)
  keep(transcript, seconds)
  local found = read(transcript, tonumber(first), tonumber(last))
  return found, is_only == '1' and #found ~= 2 * (last - first)
end

-- keys: transcript, records
-- arguments: call for which is written, order of its attempt, "anew" (nothing else stays) or ""
operations['transcript.put'] = function(keys, arguments)
  local seconds, call, order, how = unpack(arguments, 1, 4)
  if is_late(keys[2], call, order) then
    return false, OVERTAKEN
  end
  if how == 'anew' then
    redis.call('DEL', keys[1])
  end
  write('HSET', keys[1], arguments, 5)
  keep(keys[1], seconds)
  return 1
end

-- keys: transcript, records
-- arguments: call for which is written, order of its attempt, 1 if the trip goes on whatever stands there
-- Returns the message that stands there, if that is another one.
operations['transcript.add'] = function(keys, arguments)
  local seconds, call, order, goes_on, position, message = unpack(arguments)
  if is_late(keys[2], call, order) then
    return false, OVERTAKEN
  end
  keep(keys[1], seconds)
  if redis.call('HSETNX', keys[1], position, message) == 1 then
    return false
  end
  local standing = redis.call('HGET', keys[1], position)
  if standing == message then
    return false
  end
  return standing, goes_on ~= '1'
end
