-- Runs steps at the keys of one client's task and its sub-agents, in one atomic round trip.
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

-- How long keys live: as long as the client's task is open, and for their seconds after its end. Which there are besides
-- its view, history and stream, and these seconds, its view says (field `kept`: names and seconds in turn). Among them
-- '?' stands where what was there before is not known, and '/' where there are keys of sub-agents, which a hash tells.

local own = root_view:match('^(.*)view$')  -- before the name of each key of the client's task
local held, names, is_bare  -- as the view says, and whether it says nothing else; nil: it was not asked
local kept = {}

local function keep(key, seconds)  -- a key that may be new, or else would expire if its task is not known to be open
  kept[key] = seconds
end

local function read_names(is_held, of_view, first)
  held, names, is_bare = is_held == '1', of_view or '? 0 ', not first
end

local function is_named(name)
  return (' ' .. names):find(' ' .. name .. ' ', 1, true) ~= nil
end

local function set_life(key, is_open, seconds)
  if is_open then
    redis.call('PERSIST', key)
  else
    redis.call('EXPIRE', key, seconds)
  end
end

local function add_names()  -- of what was written in this round trip; returns whether there are more
  local before = names
  for key, seconds in pairs(kept) do
    local name = key:sub(1, #own) == own and key:sub(#own + 1) or '/'
    if not is_named(name) then
      names = names .. name .. ' ' .. seconds .. ' '
      if held and name ~= '/' and is_named('?') then
        redis.call('PERSIST', key)
      end
    end
  end
  return names ~= before
end

local function add_to_hash()  -- the keys of sub-agents
  local longest = 0
  for key, seconds in pairs(kept) do
    if key:sub(1, #own) ~= own then
      if redis.call('HSETNX', task_keys, key, seconds) == 1 and held and is_named('?') then
        redis.call('PERSIST', key)
      end
      longest = math.max(longest, tonumber(seconds))
    end
  end
  if not held and longest > 0 and redis.call('TTL', task_keys) < longest then
    redis.call('EXPIRE', task_keys, longest)
  end
end

local function keep_all()
  if next(kept) == nil then
    return
  end
  if not names then
    read_names(unpack(redis.call('HMGET', root_view, 'held', 'kept', 'first')))
  end
  if add_names() then
    redis.call('HSET', root_view, 'kept', names)
  end
  add_to_hash()
  if held then
    return
  end
  local longest = 0
  for key, seconds in pairs(kept) do
    redis.call('EXPIRE', key, seconds)
    longest = math.max(longest, tonumber(seconds))
  end
  if is_bare and redis.call('TTL', root_view) < longest then
    redis.call('EXPIRE', root_view, longest)
  end
end

local function hold(is_open, seconds)  -- the keys of the task and its sub-agents, or let go of them
  held = is_open
  if is_named('?') then
    for _, name in ipairs({'records', 'outcomes', 'push', 'secrets'}) do
      names = is_named(name) and names or names .. name .. ' ' .. seconds .. ' '
    end
  end
  local outliving = {}  -- the view, which names them: what deletes a task looks into the hash, too
  for name, life in names:gmatch('(%S+) (%S+)') do
    if name == 'secrets' and not is_open then
      redis.call('DEL', own .. name)
    elseif name ~= '/' and name ~= '?' then
      set_life(own .. name, is_open, life)
      if not is_open and tonumber(life) > tonumber(seconds) then
        outliving[#outliving + 1], outliving[#outliving + 2] = own .. name, life
      end
    end
  end
  if #outliving > 0 then
    redis.call('HSET', task_keys, unpack(outliving))
    names = is_named('/') and names or names .. '/ 0 '
    redis.call('HSET', root_view, 'kept', names)
  end
  local has_others = is_named('/') or is_named('?')
  local known, longest = has_others and redis.call('HGETALL', task_keys) or {}, tonumber(seconds)
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
-- claim, what that attempt was answered; order, of the latest attempt that has claimed it; how many attempts did; 1 if
-- what was begun under it may be repeated; length, of the lease in milliseconds.

local function lease_from(text)  -- nil if there is none
  local lease = {}
  lease.holder, lease.till, lease.claim, lease.order, lease.attempts, lease.repeats, lease.length =
    (text or ''):match('^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*)$')
  return lease.holder and lease
end

local function lease_text(lease)
  return table.concat({
    lease.holder, lease.till, lease.claim, lease.order, lease.attempts, lease.repeats, lease.length or ''}, ' ')
end

local leases, values = {}, {}  -- records and call → its lease, what its tool keeps; false: there is none

local function read_record(records, call)
  local name = records .. ' ' .. call
  if leases[name] == nil or values[name] == nil then
    leases[name], values[name] = unpack(redis.call('HMGET', records, call, 'kept ' .. call))
  end
  return leases[name], values[name]
end

local function lease_of(records, call)
  return lease_from(leases[records .. ' ' .. call] or (read_record(records, call)))
end

local function write_lease(records, call, lease, seconds)
  local name = records .. ' ' .. call
  if not leases[name] then
    keep(records, seconds)
  end
  leases[name] = lease_text(lease)
  redis.call('HSET', records, call, leases[name])
end

local function write_first_lease(records, call, lease, seconds)  -- returns whether there was none
  local text = lease_text(lease)
  if redis.call('HSETNX', records, call, text) == 0 then
    return false
  end
  leases[records .. ' ' .. call] = text
  keep(records, seconds)
  return true
end

-- Orders of attempts: "<microseconds of Temporal's clock>/<run>/<number of the activity in the run>/<attempt>", or just the
-- first. That clock may be put back. Within a run Temporal's numbers only grow, but for a reset of an activity, which begins
-- at a later time; between runs a time does not count that is still to come.

local CLOCKS_DIFFER = 60000000  -- microseconds by which the clocks of Temporal and Redis may

local function words_of(order)
  local at, run, activity, attempt = order:match('^(%d*)/?([^/]*)/?([^/]*)/?(%d*)$')
  return tonumber(at) or 0, run, tonumber(activity) or 0, tonumber(attempt) or 0
end

local function precedes(order, other)  -- whether an attempt of this order came before the other one
  local at, run, activity, attempt = words_of(order)
  local other_at, other_run, other_activity, other_attempt = words_of(other)
  if at >= other_at then
    return false
  elseif run == '' or run ~= other_run then
    return other_at <= now() * 1000 + CLOCKS_DIFFER
  end
  return activity < other_activity or (activity == other_activity and attempt <= other_attempt)
end

local function is_late(records, call, order)  -- whether a later attempt has claimed it; of a lost record nobody is late
  local lease = order ~= '' and lease_of(records, call)
  return lease and precedes(order, lease.order)
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
