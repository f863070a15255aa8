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
-- unpriced (open: '-' where a message was answered without a task); retention, keep:<task id>, in seconds, where somebody has set how long it is kept.
--
-- A revision is the position of the last status in the task's stream. The housekeeping takes out what has expired.

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

-- `counts`: what it has, in the order of COUNTED; false of a message that was answered without a task. Returns how many
-- seconds somebody wants the task to be kept, if anybody does.
local function note_in_context(task_id, at, agent, context_id, title, counts, seconds)
  local contexts, context = KEYS[3], KEYS[4]
  local known = redis.call(
    'HMGET', context, 'created', 'updated', 'title', 'tasks', 'agent:' .. agent, 'task:' .. task_id, 'retention',
    'keep:' .. task_id, unpack(COUNTED))
  local created, updated, has_title, tasks, of_agent, before, retention, of_task = unpack(known, 1, 8)
  if before and not counts then
    return
  end
  local was, fields = words_of(before or ''), {}
  local function set(name, value)
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  local function add_to(name, sum, more)
    if more ~= 0 then
      set(name, ('%.0f'):format((tonumber(sum) or 0) + more))
    end
  end
  if not before then
    add_to('tasks', tasks, counts and 1 or 0)
    add_to('agent:' .. agent, of_agent, 1)
  end
  if not created then
    set('created', at)
  end
  if not before and not has_title and title ~= '' then
    set('title', title)
    set('titled', task_id)
  end
  local is_task = counts
  counts = counts or {0, 0, 0, 0, 0}
  local words = {was[1] or at, at, agent}
  for n, name in ipairs(COUNTED) do
    add_to(name, known[n + 8], counts[n] - (tonumber(was[n + 3]) or 0))
    words[n + 3] = ('%.0f'):format(counts[n])
  end
  words[4] = is_task and words[4] or '-'
  set('task:' .. task_id, table.concat(words, ' '))
  if at > (updated or '') then
    set('updated', at)
    redis.call('ZADD', contexts, at, context_id)
  end
  redis.call('HSET', context, unpack(fields))
  -- It lives as long as a task is open, and for some time after that.
  local open = tonumber(known[9]) or 0
  local is_open, was_open = open + counts[1] - (tonumber(was[4]) or 0) > 0, open > 0
  if is_open and not was_open and created then
    redis.call('PERSIST', context)
  elseif not is_open and (was_open or redis.call('TTL', context) < tonumber(seconds)) then
    redis.call('EXPIRE', context, seconds)
  end
  return of_task or retention
end

local operations = {}

-- ARGV  task id, revision, time, state, agent, context, milliseconds that its view lives after the end, scopes, title,
--       tokens that went in and out, cost, 1 if that is not known, time to live of a context in seconds
-- Answers whether it is no older than what is listed, scopes that were listed before, and for how many seconds after its
-- end somebody wants it to be kept, if anybody does.
function operations.enter()
  local before = listed(ARGV[2])
  if before and is_before(ARGV[3], before[3]) then
    return {0, '', false}
  end
  local expiry = TERMINAL[ARGV[5]] and TIME:format(ARGV[3]:match('^%d+') + ARGV[8]) or '-'
  local task = words_of(table.concat({'t', ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], expiry, ARGV[9]}, ' '))
  if before then
    remove(before)
  end
  add(task)
  local counts = {TERMINAL[ARGV[5]] and 0 or 1}
  for n = 2, #COUNTED do
    counts[n] = tonumber(ARGV[n + 9])
  end
  local retention = note_in_context(ARGV[2], ARGV[4], ARGV[6], ARGV[7], ARGV[10], counts, ARGV[15])
  return {1, before and table.concat(before, ' ', 9) or '', retention}
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

-- ARGV  agent, context or *, state or *, how many; answers the ids of those whose last status is the oldest
function operations.oldest()
  local list, ids = table.concat({'l', ARGV[2], ARGV[3], ARGV[4]}, ' '), {}
  for n, row in ipairs(redis.call('ZRANGEBYLEX', rows, '[' .. list .. ' ', '(' .. list .. '!', 'LIMIT', 0, ARGV[5])) do
    ids[n] = row:match('%S+$')
  end
  return ids
end

-- Notes a message that was answered without a task: it is not counted. ARGV as of `enter`: task id, time, agent, context,
-- title, time to live of a context.
function operations.answered()
  note_in_context(ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], false, ARGV[7])
end

-- ARGV  task id; answers the revision that its row names, and the scopes
function operations.listed()
  local task = listed(ARGV[2])
  return task and table.concat({task[3], unpack(task, 9)}, ' ') or ''
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
  for _, other in ipairs(redis.call('ZRANGE', announced, 0, -1)) do
    if listed(other) then  -- it counts by itself since
      redis.call('ZREM', announced, other)
    end
  end
  local is_counted = redis.call('ZSCORE', announced, task_id)
  if not is_counted and count_open() + redis.call('ZCARD', announced) >= most then
    return 0
  end
  redis.call('ZADD', announced, now() + reserved, task_id)
  redis.call('PEXPIRE', announced, reserved)
  return 1
end

return operations[ARGV[1]]()
