-- Stands before each script at the keys of a client's task and its sub-agents.
--
-- The registry (hash) names these keys, each with the seconds that it lives after the end of the client's task. While that
-- is open, the registry has the field `open`, and no key expires.

local TERMINAL = {completed = true, failed = true, canceled = true, rejected = true}
local OVERTAKEN = 'OVERTAKEN'  -- the answer where a later attempt has claimed the call

local function expire(registry, key, seconds)  -- the registry outlives all
  redis.call('EXPIRE', key, seconds)
  if redis.call('TTL', registry) < tonumber(seconds) then redis.call('EXPIRE', registry, seconds) end
end

local function keep(registry, key, seconds)  -- a key that was just written
  redis.call('HSETNX', registry, key, seconds)
  if redis.call('HEXISTS', registry, 'open') == 0 then expire(registry, key, seconds) end
end

local function set_open(registry)  -- every key lives on
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

-- A lease (field of the records, named by the call): token of the attempt that holds the call ('': given back), until when
-- in milliseconds, the answer to its claim, the order of the latest attempt, the number of attempts.

local function lease_of(records, call)  -- nil: there is none
  local lease, text = {}, redis.call('HGET', records, call) or ''
  lease.holder, lease.till, lease.claim, lease.order, lease.attempts = text:match('^(%S*) (%S*) (%S*) (%S*) (%S*)$')
  return lease.holder and lease
end

-- Why an attempt may not write for a call (nil: it may): OVERTAKEN, or false if its claim was not answered by one of these
-- words ('': any). Of a call without a record no attempt is late.
local function refusal(records, call, token, order, claims)
  local lease = order ~= '' and lease_of(records, call)
  if lease and lease.order > order then
    return OVERTAKEN
  elseif claims ~= '' and not (lease and lease.holder == token and claims:find(lease.claim, 1, true)) then
    return false
  end
end
