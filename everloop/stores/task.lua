-- Precedes each script at the keys of a client's task and its sub-agents.
--
-- The registry (hash) lists these keys, each with the seconds that it lives after the end of the client's task. While
-- the task is open, the registry has the field `open`, and no key expires.

local TERMINAL = {completed = true, failed = true, canceled = true, rejected = true}
local OVERTAKEN = 'OVERTAKEN'  -- the answer if a later attempt has claimed the call

local function expire(registry, key, seconds)  -- the registry outlives all other keys
  redis.call('EXPIRE', key, seconds)
  if redis.call('TTL', registry) < tonumber(seconds) then redis.call('EXPIRE', registry, seconds) end
end

local function keep(registry, key, seconds)  -- for a key that was just written
  redis.call('HSETNX', registry, key, seconds)
  if redis.call('HEXISTS', registry, 'open') == 0 then expire(registry, key, seconds) end
end

local function set_open(registry)  -- no key expires
  redis.call('HDEL', registry, 'open')
  for _, key in ipairs(redis.call('HKEYS', registry)) do redis.call('PERSIST', key) end
  redis.call('HSET', registry, 'open', 1)
  redis.call('PERSIST', registry)
end

local function set_ended(registry)  -- every key expires from now on; secrets are deleted
  redis.call('HDEL', registry, 'open')
  local named = redis.call('HGETALL', registry)
  for n = 1, #named, 2 do
    if named[n]:sub(-8) == ':secrets' then redis.call('DEL', named[n]) else expire(registry, named[n], named[n + 1]) end
  end
end

-- A lease (field of the records, named by the call): token of the attempt that holds the call ('': released),
-- end in milliseconds, the answer to its claim, the order of the latest attempt, the number of attempts, 1 if
-- started work may be repeated, length in milliseconds.
local FIELDS = {'holder', 'till', 'claim', 'order', 'attempts', 'repeats', 'length'}

local function lease_of(records, call)  -- nil if there is no record
  local text, lease, n = redis.call('HGET', records, call), {}, 0
  for word in (text and text .. ' ' or ''):gmatch('(%S*) ') do
    n = n + 1
    lease[FIELDS[n]] = word
  end
  return text and lease or nil
end

local function write_lease(records, call, lease)
  local words = {}
  for n, name in ipairs(FIELDS) do words[n] = lease[name] or '' end
  redis.call('HSET', records, call, table.concat(words, ' '))
end

-- Orders of attempts: "<microseconds of Temporal's clock>/<run>/<number of the activity in the run>/<attempt>", or only
-- the first. That clock may be put back. Within a run Temporal's numbers increase, except after a reset of an activity,
-- which starts at a later time. Between runs a time in the future is ignored.
local CLOCKS_DIFFER = 60000000  -- tolerated difference, in microseconds, of the clocks of Temporal and Redis

local function precedes(order, other)  -- true if an attempt of this order came before the other one
  local function words_of(text)
    local at, run, activity, attempt = text:match('^(%d*)/?([^/]*)/?([^/]*)/?(%d*)$')
    return tonumber(at) or 0, run, tonumber(activity) or 0, tonumber(attempt) or 0
  end
  if order == other then return false end
  local at, run, activity, attempt = words_of(order)
  local other_at, other_run, other_activity, other_attempt = words_of(other)
  if at >= other_at then return false end
  if run == '' or run ~= other_run then return other_at <= now() * 1000 + CLOCKS_DIFFER end
  return activity < other_activity or (activity == other_activity and attempt <= other_attempt)
end

-- Reason why an attempt may not write for a call (nil: it may): OVERTAKEN, or false if its claim had none of
-- these answers ('': any). For a call without a record all attempts may write.
local function refusal(records, call, token, order, claims)
  local lease = call ~= '' and lease_of(records, call)
  if lease and order ~= '' and precedes(order, lease.order) then
    return OVERTAKEN
  elseif claims ~= '' and not (lease and lease.holder == token and claims:find(lease.claim, 1, true)) then
    return false
  end
end
