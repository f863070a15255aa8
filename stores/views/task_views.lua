-- Changes the view, history, stream and list entries of one task. task_index.lua stands before it.
-- The rules stand in workflows/contract/events.py; tests/support/memory/fold.py is the same in Python.
--
-- keys       view (hash), history (list), stream; stream of the client's task above it, or else its own; all open
--            tasks; record of the call for which is published
-- arguments  task id, run id, time to live in seconds, length of the stream and its bytes, key of any view before and
--            after its task id, key of the tasks that wait for a scope without the scope, order of the attempt that
--            publishes (empty: it holds no lease), then those of the operation (the take_* functions name them)
--
-- Content may be encrypted: events, messages, labels and the content of artifacts are only moved here.
--
-- Fields of the view:
--   task                                the static part
--   agent_list, context_list, expiry_list, open_tasks    keys of where it is listed; no open_tasks: it counts as none
--   listed                              the state that it is listed under
--   approvers, approvals                scopes whose holders the status asks; those under which it is listed
--   held                                1 while the client's task is open, so that none of its keys expires
--   run, seen:<run id>                  the newest run; every run that was ever seen
--   status, status_run, version, step, state, at, message_id, message    the last status
--   message:<message id>                set for each message in the history
--   artifacts, artifact:<id>            how many artifacts; the current draft of each
--   block:<n>:<artifact id>             content of the draft: 't' and text, 's' and texts that are encrypted,
--                                       one by one, or 'd' and a part as JSON
--   first                               position of the first event that was ever in the stream
--   streamed                            bytes of the stream, about: exact when it was last cut

local BLOCK_SIZE = 4096  -- a text chunk is appended to a block, so that its cost does not grow with the text
local SWEEP_SIZE = 2  -- of expired tasks that a status removes from the lists: one more than it can add
local ARTIFACT = 'artifact:'
local NARRATED = {submitted = true, working = true}
local TERMINAL = {completed = true, failed = true, canceled = true, rejected = true}

local view, history, stream, root_stream, all_open, call_record
local task_id, run_id, time_to_live, stream_length, stream_bytes, view_prefix, view_suffix, approvals_prefix, order
local given, cursor, current, has_published

local function take()
  cursor = cursor + 1
  return given[cursor]
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

local function take_event()
  return {json = take(), forwarded = take()}  -- the latter is empty where nothing is forwarded
end

local function take_status()
  return {
    event = take_event(), version = tonumber(take()), step = tonumber(take()), state = take(),
    fails_drafts = take() == '1', at = tonumber(take()),
    message = take_message(), received = take_list(take_message), approvers = take(),
  }
end

local function take_chunk()
  return {
    event = take_event(), artifact_id = take(), name = take(), description = take(), label = take(), mode = take(),
    position = tonumber(take()), attempt = tonumber(take()), index = tonumber(take()),
    last = take() == '1', failed = take() == '1', content = take(),
  }
end

local function cut(stream_key)  -- to half of what it may have, of which the newest event always stays
  local length, size = redis.call('XLEN', stream_key), nil
  repeat
    length = math.max(1, math.floor(length / 2))
    redis.call('XTRIM', stream_key, 'MAXLEN', length)
    size = redis.call('MEMORY', 'USAGE', stream_key, 'SAMPLES', 0)
  until length == 1 or size <= stream_bytes / 2
  return size
end

local function append_to(stream_key, view_key, run, json)
  local position = redis.call('XADD', stream_key, 'MAXLEN', '~', stream_length, '*', 'run', run, 'event', json)
  redis.call('HSETNX', view_key, 'first', position)
  if redis.call('HINCRBY', view_key, 'streamed', #json) > stream_bytes then
    redis.call('HSET', view_key, 'streamed', cut(stream_key))
  end
end

local function forward(json)
  local state, run = unpack(redis.call('HMGET', root_view, 'state', 'run'))
  if state and not TERMINAL[state] then
    append_to(root_stream, root_view, run or '', json)
    if not is_held() then
      redis.call('EXPIRE', root_stream, time_to_live)
    end
  end
end

local function emit(event)
  has_published = true
  append_to(stream, view, run_id, event.json)
  if event.forwarded ~= '' then
    forward(event.forwarded)
  end
end

-- Runs and statuses

local function take_over()
  if current ~= run_id then
    redis.call('HSET', view, 'run', run_id, 'seen:' .. run_id, 1)
    current = run_id
  end
end

local function is_overtaken()
  return current ~= run_id and redis.call('HEXISTS', view, 'seen:' .. run_id) == 1
end

local function is_newer(status)
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

local function add_message(message)
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
    add_message({id = replaced[1], json = replaced[2]})
  end
  for _, message in ipairs(status.received) do
    add_message(message)
  end
  redis.call('HSET', view, 'status', status.event.json, 'status_run', run_id, 'version', status.version,
    'step', status.step, 'state', status.state, 'at', status.at,
    'message_id', status.message.id, 'message', status.message.json, 'approvers', status.approvers)
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
    name = chunk.name, description = chunk.description, label = chunk.label,
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

local function is_continued_text(block, content)
  local kind = content:sub(1, 1)
  return (kind == 't' or kind == 's') and block:sub(1, 1) == kind and #block < BLOCK_SIZE
end

local function append_content(draft, chunk)
  if chunk.content == 't' and draft.blocks > 0 then
    return  -- an empty text adds nothing
  end
  local field = block_field(chunk.artifact_id, draft.blocks)
  local block = redis.call('HGET', view, field) or ''
  if is_continued_text(block, chunk.content) then
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
  emit(chunk.event)
end

-- Lists

local function view_key(id)
  return view_prefix .. id .. view_suffix
end

local function list_status(lists, state)
  local at, listed = unpack(redis.call('HMGET', view, 'at', 'listed'))
  enter_list(lists.agent, task_id, at, state, listed)
  enter_list(lists.context, task_id, at, state, listed)
  redis.call('HSET', view, 'listed', state)
  remove_expired(lists.agent, lists.expiry, SWEEP_SIZE, view_key)
end

local function refresh_lists(lists, state)
  local entry = lists.context .. ' ' .. task_id
  if TERMINAL[state] then
    redis.call('ZADD', lists.expiry, now() + time_to_live * 1000, entry)
  else
    redis.call('ZREM', lists.expiry, entry)
  end
  for _, list in ipairs({lists.agent, lists.context}) do
    set_life(list, has_open(list), time_to_live)
    set_life(list .. ':' .. state, not TERMINAL[state], time_to_live)
  end
  set_life(lists.expiry, has_open(lists.agent), time_to_live)
end

local function count_open(open_tasks, state)
  if TERMINAL[state] then
    redis.call('ZREM', open_tasks, task_id)
    redis.call('ZREM', all_open, task_id)
  else
    redis.call('ZADD', open_tasks, '+inf', task_id)
    redis.call('ZADD', all_open, redis.call('HGET', view, 'at'), task_id)
  end
  set_life(open_tasks, redis.call('ZCOUNT', open_tasks, '+inf', '+inf') > 0, time_to_live)
end

local function list_approvals()  -- scopes have no spaces
  local at, wanted, listed = unpack(redis.call('HMGET', view, 'at', 'approvers', 'approvals'))
  if wanted == (listed or '') then
    return
  end
  for scope in (listed or ''):gmatch('%S+') do
    if not (' ' .. wanted .. ' '):find(' ' .. scope .. ' ', 1, true) then
      redis.call('ZREM', approvals_prefix .. scope, task_id)
    end
  end
  for scope in wanted:gmatch('%S+') do
    redis.call('ZADD', approvals_prefix .. scope, 'NX', at, task_id)
  end
  redis.call('HSET', view, 'approvals', wanted)
end

local function refresh(has_new_status)
  if root_view ~= view then
    for _, key in ipairs({view, history, stream}) do
      keep(key, time_to_live)
    end
    return
  end
  local known = redis.call('HMGET', view, 'state', 'agent_list', 'context_list', 'expiry_list', 'open_tasks', 'held')
  local state, lists = known[1], {agent = known[2], context = known[3], expiry = known[4]}
  local is_open = lists.agent and not TERMINAL[state]  -- or else nobody knows yet whose task it is
  for _, key in ipairs({view, history, stream}) do
    set_life(key, is_open, time_to_live)
  end
  if is_open ~= (known[6] == '1') then
    hold(is_open, time_to_live)
  end
  if not lists.agent then
    return
  end
  if has_new_status then
    list_status(lists, state)
    list_approvals()
    count_open(known[5], state)
  end
  if has_new_status or not is_open then
    refresh_lists(lists, state)
  end
end

-- Operations

local fold = {}

function fold.status()
  local status = take_status()
  take_over()
  if not is_newer(status) then
    return nil, false
  end
  local before = redis.call('HGET', view, 'state')
  set_status(status)
  emit(status.event)
  return before ~= status.state and status.state or nil, true
end

function fold.chunk()
  local chunk = take_chunk()
  take_over()
  local draft = draft_for(draft_of(chunk.artifact_id), chunk)
  if draft then
    append(draft, chunk)
  end
end

function fold.narration()
  local event, state = take_event(), redis.call('HGET', view, 'state')
  if not state or NARRATED[state] then
    emit(event)
  end
end

function fold.other()
  emit(take_event())  -- a gateway may publish these for a run that is older than one that it does not know yet
end

local function publish()  -- returns the states that the task took, which a status need not change; nil: it is late
  if is_late(call_record, order) then
    return false, true
  elseif is_overtaken() then
    return {}
  end
  local taken, has_new_status = {}, false
  while cursor < #given do
    local state, is_new_status = fold[take()]()
    taken[#taken + 1] = state
    has_new_status = has_new_status or is_new_status
  end
  if has_published then  -- old news do not put off when a task expires
    refresh(has_new_status)
  end
  return taken
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
      add_message(message)
    end
  end
end

local function fill(messages)
  for _, field in ipairs({'task', 'agent_list', 'context_list', 'expiry_list', 'open_tasks'}) do
    redis.call('HSETNX', view, field, take())
  end
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
  emit({json = created, forwarded = ''})
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
  local applies = is_newer(status)
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
  if applies then  -- last: followers get nothing after a terminal status
    set_status(status)
    emit(status.event)
  end
  refresh(true)
end

local function end_task()
  local status = take_status()
  local known = redis.call('HMGET', view, 'task', 'state')
  run_id = run_id ~= '' and run_id or current or ''
  if not known[1] or TERMINAL[known[2]] or not is_newer(status) then
    return 0
  end
  if run_id ~= '' then
    take_over()
  end
  set_status(status)
  emit(status.event)
  refresh(true)
  return 1
end

for name, operation in pairs({publish = publish, create = create, restore = restore, ['end'] = end_task}) do
  operations['view.' .. name] = function(keys, arguments)
    view, history, stream, root_stream, all_open, call_record = unpack(keys)
    task_id, run_id, time_to_live, stream_length, stream_bytes = unpack(arguments, 1, 5)
    view_prefix, view_suffix, approvals_prefix, order = unpack(arguments, 6, 9)
    stream_bytes = tonumber(stream_bytes)
    given, cursor, has_published = arguments, 9, false
    current = redis.call('HGET', view, 'run')
    return operation()
  end
end
