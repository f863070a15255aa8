-- Changes the view, history, stream and index entries of one task in one atomic step.
-- The rules stand in workflows/contract/events.py; stores/fold.py is the same in Python.
--
-- KEYS  view (hash), history (list), stream
-- ARGV  task id, run id, time to live in seconds, length of the stream, key of any view before and after
--       its task id, operation, arguments of the operation (the take_* functions name them)
--
-- Fields of the view:
--   task, owner_index, context_index    the static part; keys of the indexes
--   run, seen:<run id>                  the newest run; every run that was ever seen
--   status, status_run, version, step, state, at, message_id, message    the last status
--   message:<message id>                set for each message in the history
--   artifacts, artifact:<id>            how many artifacts; the current draft of each
--   block:<n>:<artifact id>             content of the draft: 't' and text, or 'd' and a part as JSON
--   first                               position of the first event that was ever in the stream

local BLOCK_SIZE = 4096  -- a text chunk is appended to a block, so that its cost does not grow with the text
local SAMPLE_SIZE = 2
local ARTIFACT = 'artifact:'
local TERMINAL = {completed = true, failed = true, canceled = true, rejected = true}

local view, history, stream = KEYS[1], KEYS[2], KEYS[3]
local task_id, run_id, time_to_live, stream_length = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local view_prefix, view_suffix, operation = ARGV[5], ARGV[6], ARGV[7]
local cursor = 7

local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function take_list(take_one)
  local taken = {}
  for n = 1, tonumber(take()) do
    taken[n] = take_one()
  end
  return taken
end

local function take_message()
  return {id = take(), json = take()}  -- both are empty where a status has no message
end

local function take_status()
  return {
    json = take(), version = tonumber(take()), step = tonumber(take()), state = take(),
    fails_drafts = take() == '1', at = tonumber(take()),
    message = take_message(), received = take_list(take_message),
  }
end

local function take_chunk()
  return {
    json = take(), artifact_id = take(), name = take(), description = take(), mode = take(),
    position = tonumber(take()), attempt = tonumber(take()), index = tonumber(take()),
    last = take() == '1', failed = take() == '1', content = take(),
  }
end

local function emit(json)
  local position = redis.call('XADD', stream, 'MAXLEN', '~', stream_length, '*', 'run', run_id, 'event', json)
  redis.call('HSETNX', view, 'first', position)
end

-- Runs and statuses

local current = redis.call('HGET', view, 'run')

local function take_over()
  if current ~= run_id then
    redis.call('HSET', view, 'run', run_id, 'seen:' .. run_id, 1)
    current = run_id
  end
end

local function is_overtaken()
  return current ~= run_id and redis.call('HEXISTS', view, 'seen:' .. run_id) == 1
end

local function is_news(status)
  local last = redis.call('HMGET', view, 'at', 'status_run', 'version', 'step')
  local at, status_run = tonumber(last[1]), last[2]
  if not at then
    return true
  end
  if current == run_id then
    local version, step = tonumber(last[3]), tonumber(last[4])
    return status_run ~= run_id or status.version > version or (status.version == version and status.step > step)
  end
  return not is_overtaken() and (not current or status.at > at)
end

local function remember(message)
  if message.json ~= '' and redis.call('HSETNX', view, 'message:' .. message.id, 1) == 1 then
    redis.call('RPUSH', history, message.json)
  end
end

local function fail_drafts()
  for _, field in ipairs(redis.call('HKEYS', view)) do
    if field:sub(1, #ARTIFACT) == ARTIFACT then
      local draft = cjson.decode(redis.call('HGET', view, field))
      draft.failed = not draft.complete
      redis.call('HSET', view, field, cjson.encode(draft))
    end
  end
end

local function set_status(status)
  local replaced = redis.call('HMGET', view, 'message_id', 'message', 'step')
  if replaced[3] == '0' then
    remember({id = replaced[1], json = replaced[2]})
  end
  for _, message in ipairs(status.received) do
    remember(message)
  end
  redis.call('HSET', view, 'status', status.json, 'status_run', run_id, 'version', status.version,
    'step', status.step, 'state', status.state, 'at', status.at,
    'message_id', status.message.id, 'message', status.message.json)
  if status.fails_drafts then
    fail_drafts()
  end
end

-- Artifacts

local function block_field(artifact_id, number)
  return 'block:' .. number .. ':' .. artifact_id
end

local function draft_of(artifact_id)
  local json = redis.call('HGET', view, ARTIFACT .. artifact_id)
  return json and cjson.decode(json)
end

local function is_continued(draft, chunk)
  return not draft.complete and not draft.failed and draft.run == run_id
    and draft.position == chunk.position and draft.attempt == chunk.attempt and draft.next == chunk.index
end

local function is_overtaken_by(draft, chunk)
  return draft.run ~= run_id or chunk.position > draft.position
    or (chunk.position == draft.position and chunk.attempt > draft.attempt)
end

local function begin_draft(old, chunk)
  for number = 1, old and old.blocks or 0 do
    redis.call('HDEL', view, block_field(chunk.artifact_id, number))
  end
  return {
    order = old and old.order or redis.call('HINCRBY', view, 'artifacts', 1),
    run = run_id, position = chunk.position, attempt = chunk.attempt,
    name = chunk.name, description = chunk.description,
    next = 0, blocks = 0, complete = false, failed = false,
  }
end

local function extend_draft(old, chunk)
  if old.complete or old.failed then
    return nil
  end
  old.run, old.position, old.attempt, old.next = run_id, chunk.position, chunk.attempt, 0
  return old
end

local function draft_for(old, chunk)  -- the draft that the chunk is to be appended to; nil drops the chunk
  if old and is_continued(old, chunk) then
    return old
  elseif chunk.index ~= 0 or (old and not is_overtaken_by(old, chunk)) then
    return nil
  elseif chunk.mode == 'extend' then
    return old and extend_draft(old, chunk)
  elseif chunk.mode == 'draft' and old and old.complete and old.run == run_id and old.position == chunk.position then
    return nil
  end
  return begin_draft(old, chunk)
end

local function is_text(content)
  return content:sub(1, 1) == 't'
end

local function append_content(draft, chunk)
  if chunk.content == 't' and draft.blocks > 0 then
    return  -- an empty text adds nothing
  end
  local field = block_field(chunk.artifact_id, draft.blocks)
  local block = redis.call('HGET', view, field) or ''
  if is_text(chunk.content) and is_text(block) and #block < BLOCK_SIZE then
    redis.call('HSET', view, field, block .. chunk.content:sub(2))
  else
    draft.blocks = draft.blocks + 1
    redis.call('HSET', view, block_field(chunk.artifact_id, draft.blocks), chunk.content)
  end
end

local function append(draft, chunk)
  append_content(draft, chunk)
  draft.next = draft.next + 1
  draft.complete, draft.failed = chunk.last, chunk.failed
  redis.call('HSET', view, ARTIFACT .. chunk.artifact_id, cjson.encode(draft))
  emit(chunk.json)
end

-- Indexes

local function forget_some_expired(index)
  for _, id in ipairs(redis.call('ZRANDMEMBER', index, SAMPLE_SIZE)) do
    if redis.call('HEXISTS', view_prefix .. id .. view_suffix, 'task') == 0 then
      redis.call('ZREM', index, id)
    end
  end
end

local function refresh(has_new_status)
  redis.call('EXPIRE', view, time_to_live)
  redis.call('EXPIRE', history, time_to_live)
  redis.call('EXPIRE', stream, time_to_live)
  local at, owner_index, context_index = unpack(redis.call('HMGET', view, 'at', 'owner_index', 'context_index'))
  for _, index in ipairs({owner_index or nil, context_index or nil}) do
    if has_new_status then
      redis.call('ZADD', index, at, task_id)
      forget_some_expired(index)
    end
    redis.call('EXPIRE', index, time_to_live)
  end
end

-- Operations

local fold = {}

function fold.status()
  local status = take_status()
  take_over()
  if not is_news(status) then
    return false
  end
  set_status(status)
  emit(status.json)
  return true
end

function fold.chunk()
  local chunk = take_chunk()
  take_over()
  local draft = draft_for(draft_of(chunk.artifact_id), chunk)
  if draft then
    append(draft, chunk)
  end
end

function fold.other()
  emit(take())  -- a gateway may publish these for a run that is older than the one it has not heard of yet
end

local function publish()
  if is_overtaken() then
    return
  end
  local has_new_status = false
  while cursor < #ARGV do
    has_new_status = fold[take()]() or has_new_status
  end
  refresh(has_new_status)
end

local function put_before_history(messages)
  local later = {}
  for n, json in ipairs(redis.call('LRANGE', history, 0, -1)) do
    later[n] = {id = cjson.decode(json).message_id, json = json}
    redis.call('HDEL', view, 'message:' .. later[n].id)
  end
  redis.call('DEL', history)
  for _, list in ipairs({messages, later}) do
    for _, message in ipairs(list) do
      remember(message)
    end
  end
end

local function fill(messages)
  redis.call('HSETNX', view, 'task', take())
  redis.call('HSETNX', view, 'owner_index', take())
  redis.call('HSETNX', view, 'context_index', take())
  put_before_history(messages)
end

local function create()
  if redis.call('HEXISTS', view, 'task') == 1 then
    return
  end
  local created, status, messages = take(), take_status(), take_list(take_message)
  fill(messages)
  if redis.call('HEXISTS', view, 'status') == 0 then
    set_status(status)
  end
  emit(created)
  refresh(true)
end

local function restore_artifact(replaces_draft)
  local chunks = take_list(take_chunk)
  local draft = draft_of(chunks[1].artifact_id)
  if draft and (draft.complete or not replaces_draft) then
    return
  end
  draft = begin_draft(draft, chunks[1])
  for _, chunk in ipairs(chunks) do
    append(draft, chunk)
  end
end

local function restore()
  local is_streaming, status, messages = take() == '1', take_status(), take_list(take_message)
  local last = redis.call('HMGET', view, 'status_run', 'message_id')
  local applies = is_news(status)
  if not applies and last[1] == run_id and last[2] ~= status.message.id then
    table.insert(messages, status.message)  -- a newer status replaced it before it was seen here
  end
  fill(messages)
  if applies and (not current or last[1]) then
    take_over()
  end
  for _ = 1, tonumber(take()) do
    restore_artifact(applies and not is_streaming)
  end
  if applies then  -- last: followers hear nothing after a terminal status
    set_status(status)
    emit(status.json)
  end
  refresh(true)
end

local function end_task()
  local status = take_status()
  local known = redis.call('HMGET', view, 'task', 'state')
  run_id = run_id ~= '' and run_id or current or ''
  if not known[1] or TERMINAL[known[2]] or not is_news(status) then
    return 0
  end
  if run_id ~= '' then
    take_over()
  end
  set_status(status)
  emit(status.json)
  refresh(true)
  return 1
end

local operations = {publish = publish, create = create, restore = restore, ['end'] = end_task}
return operations[operation]()
