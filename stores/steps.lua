-- Runs steps at the keys of one client's task and its sub-agents, in one atomic trip.
--
-- KEYS  view of the client's task, its hash of keys, then the keys of each step in turn
-- ARGV  for each step: "<part>.<operation>", how many keys, how many arguments, and these
--
-- Each part stands behind this as a function `parts.<part>`, which fills in `operations` when a step needs one. An
-- operation takes its keys and its arguments; it returns its reply, and true if the steps after it are not to be done,
-- or OVERTAKEN, if the attempt at a call for which it was asked is no longer the one that works on it.
--
-- Returns 1 if an attempt was overtaken, and the replies of the steps that were done.

local root_view, task_keys = KEYS[1], KEYS[2]
local parts, operations = {}, {}
local OVERTAKEN = 'overtaken'

-- How long keys live: as long as the client's task is open, and for their seconds after its end. Its hash of keys tells
-- which there are besides its own view, history and stream, and these seconds.

local held, kept = nil, {}

local function is_held()  -- whether the client's task is open
  if held == nil then
    held = redis.call('HGET', root_view, 'held') == '1'
  end
  return held
end

local function keep(key, seconds)  -- a key that is written in this trip
  kept[key] = seconds
end

local function set_life(key, is_open, seconds)
  if is_open then
    redis.call('PERSIST', key)
  else
    redis.call('EXPIRE', key, seconds)
  end
end

local function keep_all()
  for key, seconds in pairs(kept) do
    local is_new = redis.call('HSETNX', task_keys, key, seconds) == 1
    if not is_held() then
      redis.call('EXPIRE', key, seconds)
      if redis.call('TTL', task_keys) < tonumber(seconds) then
        redis.call('EXPIRE', task_keys, seconds)
      end
    elseif is_new then
      redis.call('PERSIST', key)
      redis.call('PERSIST', task_keys)
    end
  end
end

local function hold(is_open, seconds)  -- the keys of the task and its sub-agents, or let go of them
  held = is_open
  local known, longest = redis.call('HGETALL', task_keys), tonumber(seconds)
  for n = 1, #known, 2 do
    set_life(known[n], is_open, known[n + 1])
    longest = math.max(longest, tonumber(known[n + 1]))
  end
  if #known > 0 then
    set_life(task_keys, is_open, longest)
  end
end

-- Leases: the records of a task (hash: call → lease) say which attempt at a call may work on it. Fields of a lease:
-- holder, the attempt whose the call is ('': given back); until, when that ends, in milliseconds of Redis' clock;
-- claim, what that attempt was answered; order, of the latest attempt that has claimed it; how many attempts did.

local function lease_from(text)  -- nil if there is none
  local lease = {}
  lease.holder, lease.till, lease.claim, lease.order, lease.attempts = (text or ''):match('^(%S*) (%S*) (%S*) (%S*) (%S*)$')
  return lease.holder and lease
end

local function lease_of(records, call)
  return lease_from(redis.call('HGET', records, call))
end

local function write_lease(records, call, lease, seconds)
  local text = table.concat({lease.holder, lease.till, lease.claim, lease.order, lease.attempts}, ' ')
  redis.call('HSET', records, call, text)
  keep(records, seconds)
end

local function is_late(records, call, order)  -- whether a later attempt has claimed it; of a lost record nobody is late
  local lease = order ~= '' and lease_of(records, call)
  return lease and lease.order > order
end

local function slice(list, first, length)
  local sliced = {}
  for n = 1, length do
    sliced[n] = list[first + n - 1]
  end
  return sliced
end

local function run()
  local replies, key, at, stops = {}, 3, 1, nil
  while at <= #ARGV and not stops do
    local name, keys, length = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    if not operations[name] then
      parts[name:match('^%w+')]()
    end
    local reply
    reply, stops = operations[name](slice(KEYS, key, keys), slice(ARGV, at + 3, length))
    replies[#replies + 1] = reply or false
    key, at = key + keys, at + 3 + length
  end
  keep_all()
  return {stops == OVERTAKEN and 1 or 0, replies}
end
