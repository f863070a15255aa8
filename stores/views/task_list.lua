-- Returns one page of a list of tasks, with the views on it, in one atomic step.
--
-- KEYS  the list (its state at the end, if tasks of one state are asked for), the agent's list, the expiry list
-- ARGV  time and task id of the entry that the page begins after (both empty: at the first one), time of the
--       oldest one wanted, how many entries, how many of the newest messages of each ('all': all of them),
--       whether artifacts are wanted (1), key of any view before and after its task id, the same of a history,
--       how many bytes of views and messages at most; an entry that alone is larger comes without both
--
-- Answers how many expired tasks it removed, how many tasks match, and for each entry: task id, time, fields of
-- the view (name and value in turn), messages, how many bytes it left out of them (0: none); at last 1 if the page
-- had no room for wanted entries. If it removed PURGE_SIZE there may be more: call again.

local PURGE_SIZE = 500
local FIELDS = {'task', 'status_run', 'status'}

local list, agent_list, expiry_list = KEYS[1], KEYS[2], KEYS[3]
local after_time, after_id, oldest, wanted = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local messages, with_artifacts, most = ARGV[5], ARGV[6] == '1', tonumber(ARGV[11])

local function view_key(task_id)
  return ARGV[7] .. task_id .. ARGV[8]
end

local function is_before(one, other)  -- by bytes, as sorted sets compare; < would follow the server's locale
  for n = 1, math.min(#one, #other) do
    if one:byte(n) ~= other:byte(n) then
      return one:byte(n) < other:byte(n)
    end
  end
  return #one < #other
end

local function first_rank()  -- from the newest down; ids of the same time go down too
  if after_time == '' then
    return 0
  end
  local low = redis.call('ZCOUNT', list, '(' .. after_time, '+inf')
  local high = redis.call('ZCOUNT', list, after_time, '+inf')
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(redis.call('ZREVRANGE', list, middle, middle)[1], after_id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function usage(key)
  return redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) or 0
end

local function status_of(key)
  local fields = {}
  for n, value in ipairs(redis.call('HMGET', key, unpack(FIELDS))) do
    fields[2 * n - 1], fields[2 * n] = FIELDS[n], value
  end
  return fields
end

local function messages_of(key)
  if messages == '0' then
    return {}
  end
  return redis.call('LRANGE', key, messages == 'all' and 0 or '-' .. messages, -1)
end

local function size_of(texts)
  local size = 0
  for _, text in ipairs(texts) do
    size = size + (text and #text or 0)
  end
  return size
end

local function wanted_of(task_id)  -- fields, messages, their size, bytes that were left out
  local view, history = view_key(task_id), ARGV[9] .. task_id .. ARGV[10]
  local size = (with_artifacts and usage(view) or 0) + (messages == 'all' and usage(history) or 0)
  local fields, history_entries = nil, {}
  if size <= most then  -- or else they are not even read
    fields, history_entries = with_artifacts and redis.call('HGETALL', view) or status_of(view), messages_of(history)
    size = size_of(fields) + size_of(history_entries)
  end
  if size > most then
    fields, history_entries = status_of(view), {}
    return fields, history_entries, size_of(fields), size
  end
  return fields, history_entries, size, 0
end

local removed = remove_expired(agent_list, expiry_list, PURGE_SIZE, view_key)
local total = redis.call('ZCOUNT', list, oldest, '+inf')
local rank, found, missing, is_full, room = first_rank(), {}, {}, false, most
while #found < wanted and rank < total and not is_full do
  local last = math.min(rank + wanted - #found, total) - 1
  local entries = redis.call('ZREVRANGE', list, rank, last, 'WITHSCORES')
  for n = 1, #entries, 2 do
    local task_id = entries[n]
    if redis.call('HEXISTS', view_key(task_id), 'task') == 1 then
      local fields, history_entries, size, left_out = wanted_of(task_id)
      room = room - size
      is_full = room < 0 and #found > 0
      if is_full then
        break
      end
      table.insert(found, {task_id, entries[n + 1], fields, history_entries, left_out})
    else
      table.insert(missing, task_id)
    end
  end
  rank = last + 1
end
for _, task_id in ipairs(missing) do  -- somebody deleted the view
  redis.call('ZREM', list, task_id)
end
return {removed, total - #missing, found, is_full and 1 or 0}
