-- The tasks of one owner. What is listed of each are rows of one sorted set, all of the same score, so that they are
-- sorted by their bytes: the rows of a list stand together, and a status replaces all of a task's rows at once.
--
-- KEYS  the rows; tasks that are announced (sorted set, by the time until which they count); of `enter` also the contexts
--       of the owner (sorted set, by the time of their last status), and what is known of that of the task (hash)
-- ARGV  operation, its arguments
--
-- Rows, of words without spaces; times of 16 digits:
--   t <task id> <revision> <time> <state> <agent> <context> <expiry> <scope> ...   what is listed of the task
--   l <agent> <context or *> <state or *> <time> <task id>   four: its places in lists, by time of its last status
--   o <task id>              where it is open
--   e <expiry> <task id>     where it has ended: when its view expires, in milliseconds
--
-- Fields of a context: title, titled (whose words it has, if nobody has given it another), created, updated; tasks, open, input, output, cost (billionths of a dollar), unpriced, and
-- agent:<agent>, which count; task:<task id>, what is counted of one: created, changed, agent, open, input, output, cost,
-- unpriced; retention, keep:<task id>, in seconds, where somebody has set how long it is kept.
--
-- A revision is the position of the last status in the task's stream. The rows live as long as a task is open.

local TERMINAL = {completed = true, failed = true, canceled = true, rejected = true}
local BATCH = 500  -- of expired tasks that are named at once
local TIME = '%016.0f'

local rows, announced = KEYS[1], KEYS[2]

local function words_of(row)
  local words = {}
  for word in row:gmatch('%S+') do
    words[#words + 1] = word
  end
  return words
end

local function listed(task_id)  -- as the words of its row
  local row = redis.call('ZRANGEBYLEX', rows, '[t ' .. task_id .. ' ', '(t ' .. task_id .. '!', 'LIMIT', 0, 1)[1]
  return row and words_of(row)
end

local function rows_of(task)
  local _, task_id, _, at, state, agent, context, expiry = unpack(task)
  local all = {table.concat(task, ' ')}
  for _, place in ipairs({'* *', '* ' .. state, context .. ' *', context .. ' ' .. state}) do
    all[#all + 1] = 'l ' .. agent .. ' ' .. place .. ' ' .. at .. ' ' .. task_id
  end
  all[#all + 1] = TERMINAL[state] and 'e ' .. expiry .. ' ' .. task_id or 'o ' .. task_id
  return all
end

local function remove(task)
  redis.call('ZREM', rows, unpack(rows_of(task)))
end

local function add(task)
  local scored = {}
  for _, row in ipairs(rows_of(task)) do
    scored[#scored + 1], scored[#scored + 2] = 0, row
  end
  redis.call('ZADD', rows, unpack(scored))
end

local function count_open()
  return redis.call('ZLEXCOUNT', rows, '[o ', '(o!')
end

local function is_before(one, other)  -- positions of a stream
  local first, second = tonumber((one:match('^%d+'))), tonumber((other:match('^%d+')))
  return first < second or (first == second and tonumber(one:match('%d+$')) < tonumber(other:match('%d+$')))
end

local function expired(most, at)
  local ids = {}
  local due = redis.call('ZRANGEBYLEX', rows, '[e ', '[e ' .. TIME:format(at), 'LIMIT', 0, most)
  for n, row in ipairs(due) do
    ids[n] = row:match('%S+$')
  end
  return ids
end

local COUNTED = {'open', 'input', 'output', 'cost', 'unpriced'}

local function note_in_context(task_id, at, agent, context_id, title, counted)
  local contexts, context = KEYS[3], KEYS[4]
  local before = words_of(redis.call('HGET', context, 'task:' .. task_id) or '')
  if not before[1] then
    redis.call('HINCRBY', context, 'tasks', 1)
    redis.call('HINCRBY', context, 'agent:' .. agent, 1)
    redis.call('HSETNX', context, 'created', at)
    if title ~= '' and redis.call('HSETNX', context, 'title', title) == 1 then
      redis.call('HSET', context, 'titled', task_id)
    end
  end
  for n, name in ipairs(COUNTED) do
    redis.call('HINCRBY', context, name, ('%.0f'):format(counted[n] - (tonumber(before[n + 3]) or 0)))
  end
  redis.call('HSET', context, 'task:' .. task_id, table.concat({before[1] or at, at, agent, unpack(counted)}, ' '))
  if at > (redis.call('HGET', context, 'updated') or '') then
    redis.call('HSET', context, 'updated', at)
    redis.call('ZADD', contexts, at, context_id)
  end
end

local function set_life(key, is_open, seconds)
  if is_open then
    redis.call('PERSIST', key)
  elseif redis.call('TTL', key) < tonumber(seconds) then
    redis.call('EXPIRE', key, seconds)
  end
end

local operations = {}

-- ARGV  task id, revision, time, state, agent, context, time to live in seconds, scopes, title, tokens that went in and
--       out, cost, 1 if that is not known, time to live of a context
-- Answers whether it is no older than what is listed, scopes that were listed before, some tasks that have expired.
function operations.enter()
  local time_to_live, ended = tonumber(ARGV[8]), TERMINAL[ARGV[5]]
  local before = listed(ARGV[2])
  if before and is_before(ARGV[3], before[3]) then
    return {0, '', {}}
  end
  local at = ended and now()
  local expiry = ended and TIME:format(at + time_to_live * 1000) or '-'
  if ended and before and before[3] == ARGV[3] and (tonumber(before[8]) or 0) > at then
    expiry = before[8]  -- said again, by whoever was late
  end
  local task = words_of(table.concat({'t', ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], expiry, ARGV[9]}, ' '))
  if before then
    remove(before)
  else
    redis.call('ZREM', announced, ARGV[2])
  end
  add(task)
  if not ended and (not before or TERMINAL[before[5]]) then
    redis.call('PERSIST', rows)
  elseif ended and count_open() == 0 then
    redis.call('EXPIRE', rows, time_to_live)
  end
  local counted = {ended and 0 or 1, tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])}
  for n, number in ipairs(counted) do
    counted[n] = ('%.0f'):format(number)
  end
  note_in_context(ARGV[2], ARGV[4], ARGV[6], ARGV[7], ARGV[10], counted)
  set_life(KEYS[3], count_open() > 0, ARGV[15])
  set_life(KEYS[4], redis.call('HGET', KEYS[4], 'open') ~= '0', ARGV[15])
  return {1, before and table.concat(before, ' ', 9) or '', ended and expired(2, at) or {}}
end

-- ARGV  agent, context or *, state or *, time and task id of the entry that the page begins after ("": at the newest),
--       time of the oldest one wanted, how many
-- Answers how many there are, time and task id of each of the page, and tasks that have expired: to be dropped first.
function operations.page()
  local list = table.concat({'l', ARGV[2], ARGV[3], ARGV[4]}, ' ')
  local oldest, newest = '[' .. list .. ' ' .. ARGV[7], '(' .. list .. '!'
  local total = redis.call('ZLEXCOUNT', rows, oldest, newest)
  if ARGV[5] ~= '' then
    newest = '(' .. list .. ' ' .. ARGV[5] .. ' ' .. ARGV[6]
  end
  local page = {}
  for n, row in ipairs(redis.call('ZREVRANGEBYLEX', rows, newest, oldest, 'LIMIT', 0, ARGV[8])) do
    page[n] = row:sub(#list + 2)
  end
  return {total, page, expired(BATCH, now())}
end

-- Notes a message that was answered without a task: it is not counted. ARGV as of `enter`: task id, time, agent, context,
-- title, time to live of a context.
function operations.answered()
  if redis.call('HEXISTS', KEYS[4], 'task:' .. ARGV[2]) == 0 then
    note_in_context(ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], {0, 0, 0, 0, 0})
    redis.call('HINCRBY', KEYS[4], 'tasks', -1)
  end
  set_life(KEYS[3], count_open() > 0, ARGV[7])
  set_life(KEYS[4], redis.call('HGET', KEYS[4], 'open') ~= '0', ARGV[7])
end

-- ARGV  task id; answers the scopes that its row names
function operations.scopes()
  local task = listed(ARGV[2])
  return task and table.concat(task, ' ', 9) or ''
end

-- ARGV  task id; answers whether it was listed
function operations.remove()
  local task = listed(ARGV[2])
  redis.call('ZREM', announced, ARGV[2])
  if task then
    remove(task)
  end
  return task and 1 or 0
end

function operations.expired()
  return expired(BATCH, now())
end

function operations.count_expired()
  return redis.call('ZLEXCOUNT', rows, '[e ', '[e ' .. TIME:format(now()))
end

-- ARGV  of each task: its id, and in how many milliseconds its view expires ("": it is gone)
-- Answers how many were taken out.
function operations.drop_expired()
  local removed = 0
  for n = 2, #ARGV, 2 do
    local task = listed(ARGV[n])
    if task then
      remove(task)
      if ARGV[n + 1] ~= '' then
        task[8] = TIME:format(now() + ARGV[n + 1])
        add(task)
      else
        removed = removed + 1
      end
    end
  end
  return removed
end

-- ARGV  task id, how many may be open, milliseconds that it counts; answers whether it may start
function operations.reserve()
  local task_id, most, reserved = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  if listed(task_id) then
    return 1
  end
  redis.call('ZREMRANGEBYSCORE', announced, '-inf', now())
  local is_counted = redis.call('ZSCORE', announced, task_id)
  if not is_counted and count_open() + redis.call('ZCARD', announced) >= most then
    return 0
  end
  redis.call('ZADD', announced, now() + reserved, task_id)
  redis.call('PEXPIRE', announced, reserved)
  return 1
end

return operations[ARGV[1]]()
