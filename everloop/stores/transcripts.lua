-- The transcript of one run (hash: position → message).

local AT_ONCE = 1000  -- Lua's stack holds only so many arguments of a command

local function write(key, arguments, first)  -- positions and messages in turn; returns how many are new there
  local added = 0
  for n = first, #arguments, AT_ONCE do
    added = added + redis.call('HSET', key, unpack(arguments, n, math.min(n + AT_ONCE - 1, #arguments)))
  end
  return added
end

local function copy_missing(from, to, start)  -- the positions below `start` that the run does not have
  local there, missing = {}, {}
  for _, position in ipairs(redis.call('HKEYS', to)) do
    there[position] = true
  end
  local before = redis.call('HGETALL', from)
  for n = 1, #before, 2 do
    if tonumber(before[n]) < start and not there[before[n]] then
      missing[#missing + 1], missing[#missing + 2] = before[n], before[n + 1]
    end
  end
  write(to, missing, 1)
end

local function read(key, first, start, last)  -- the positions before `start`, and `last`; false: it is not there
  local found, positions = {}, {}
  for position = first, start - 1 do
    positions[#positions + 1] = position
  end
  positions[#positions + 1] = last
  for n = 1, #positions, AT_ONCE do
    for _, message in ipairs(redis.call('HMGET', key, unpack(positions, n, math.min(n + AT_ONCE - 1, #positions)))) do
      found[#found + 1] = message
    end
  end
  return found
end

local function has_just(found)  -- whether none is missing but the last, the reply
  for n = 1, #found do
    if (found[n] and true or false) == (n == #found) then
      return false
    end
  end
  return true
end

-- The first argument of each operation is the time to live in seconds; positions and messages are the last, in turn.

-- keys: transcript, that of the run before, or else the same
-- arguments: first position that is written; first one that is read, and the one behind the last; 1 if the script ends
-- unless just these are there
-- Returns the messages from the first that is read up to the first that is written, and the one behind the last.
operations['transcript.open'] = function(keys, arguments)
  local transcript, previous = unpack(keys)
  local seconds, is_only, start, first, last = arguments[1], arguments[5], unpack(arguments, 2, 4)
  start, first, last = tonumber(start), tonumber(first), tonumber(last)
  if previous ~= transcript then
    copy_missing(previous, transcript, start)
  end
  local is_new = write(transcript, arguments, 6) == last  -- all of it: no attempt before has left a reply
  if #arguments > 5 or previous ~= transcript then
    keep(transcript, seconds)
  end
  local found = is_new and last > 0 and {false} or read(transcript, first, start, last)
  return found, is_only == '1' and not has_just(found)
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
  write(keys[1], arguments, 5)
  keep(keys[1], seconds)
  return 1
end

-- keys: transcript, records
-- arguments: call for which is written, order of its attempt, 1 if the script goes on whatever stands there
-- Returns the message that stands there, if that is another one.
operations['transcript.add'] = function(keys, arguments)
  local seconds, call, order, goes_on, position, message = unpack(arguments)
  if is_late(keys[2], call, order) then
    return false, OVERTAKEN
  end
  if redis.call('HSETNX', keys[1], position, message) == 1 then
    if order == '' or redis.call('HLEN', keys[1]) == 1 then  -- else what it follows was written before
      keep(keys[1], seconds)
    end
    return false
  end
  local standing = redis.call('HGET', keys[1], position)
  if standing == message then
    return false
  end
  return standing, goes_on ~= '1'
end
