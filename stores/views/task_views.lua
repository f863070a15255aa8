-- Changes the view, history and stream of one task. What is listed of it follows in another step (task_lists.lua).
-- The rules stand in workflows/contract/events.py; tests/support/memory/fold.py is the same in Python.
--
-- keys       view (hash), history (list), stream; stream of the client's task above it, or else its own; record of the
--            call for which is published; push configs of the task (hash), where somebody is to be notified
-- arguments  run id, time to live in seconds, length of the stream and its bytes, order of the attempt that publishes
--            (empty: it holds no lease), then those of the operation (the take_* functions name them)
--
-- Each operation answers what it did, what is to be listed now (false: nothing new), and ids of push configs.
--
-- What is needed of the view is read at once, changed here, and written at once. Content may be encrypted: events,
-- messages, labels and the content of artifacts are only moved here. A word has no spaces: ids that clients choose are
-- percent-encoded.
--
-- Fields of the view:
--   task                                the static part
--   held                                1 while the client's task is open, so that none of its keys expires
--   run, runs                           the newest run; every run that was ever seen
--   status, status_run, version, step, state, at, message_id, message    the last status
--   approvers                           scopes whose holders it asks
--   changed                             its position in the stream
--   ids                                 words: the ids of the messages in the history
--   drafts                              words: the ids of the artifacts, in order
--   artifact:<id>                       the current draft of one: numbers and flags, its run, and in the next line what
--                                       it is called (draft_of tells)
--   block:<n>:<id>, tail:<id>           its content, the last block being the tail: 't' and text, 's' and texts that
--                                       are encrypted, one by one, or 'd' and a part as JSON
--   first                               position of the first event that was ever in the stream
--   streamed                            bytes of the stream, about: exact when it was last cut

local BLOCK_SIZE = 4096  -- a text chunk is appended to a block, so that its cost does not grow with the text
local AT_ONCE = 1000  -- Lua's stack holds only so many arguments of a command
local NARRATED = {submitted = true, working = true}
local TERMINAL = {completed = true, failed = true, canceled = true, rejected = true}
local OF_EVENTS = {'task', 'held', 'run', 'runs', 'state', 'drafts', 'first', 'streamed'}
local OF_STATUSES = {
  'changed', 'status_run', 'version', 'step', 'at', 'message_id', 'message', 'approvers', 'ids',
}
local OF_ROOT = {'state', 'run', 'held', 'first', 'streamed'}

local view, history, stream, root_stream, call_record, push
local run_id, time_to_live, stream_length, stream_bytes, order
local given, cursor
local old, new, removed, root  -- fields of the view, and of the client's task above it
local drafts, ids, added, messages, has_published, is_created, listed

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
    fails_drafts = take() == '1', at = take(),
    message = take_message(), received = take_list(take_message), approvers = take(),
  }
end

local function take_chunk()  -- its content is no part of the event, so that it comes once
  local chunk = {
    event = take_event(), artifact_id = take(), label = take(), mode = take(),
    position = tonumber(take()), attempt = tonumber(take()), index = tonumber(take()),
    last = take() == '1', failed = take() == '1', content = take(),
  }
  chunk.event.part = chunk.content
  return chunk
end

-- The fields of the view

local function read_all(key, names)
  local fields = {}
  for first = 1, #names, AT_ONCE do
    local values = redis.call('HMGET', key, unpack(names, first, math.min(first + AT_ONCE - 1, #names)))
    for n, value in ipairs(values) do
      fields[names[first + n - 1]] = value or nil
    end
  end
  return fields
end

local function write_all(key, fields)
  local pairs_of = {}
  for name, value in pairs(fields) do
    pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = name, value
  end
  for first = 1, #pairs_of, AT_ONCE do
    redis.call('HSET', key, unpack(pairs_of, first, math.min(first + AT_ONCE - 1, #pairs_of)))
  end
end

local function get(name)
  local value = new[name]
  if value == nil then
    return old[name]
  end
  return value
end

local function read_view(has_status, chunks)
  local names = {unpack(OF_EVENTS)}
  for _, name in ipairs(has_status and OF_STATUSES or {}) do
    names[#names + 1] = name
  end
  for _, chunk in ipairs(chunks) do
    names[#names + 1], names[#names + 2] = 'artifact:' .. chunk.artifact_id, 'tail:' .. chunk.artifact_id
  end
  old = read_all(view, names)
  if view == root_view then
    held = old.held == '1'
  else
    root = read_all(root_view, OF_ROOT)
    held = root.held == '1'
  end
  ids = old.ids or ' '
end

-- Events

local function cut(stream_key)  -- to half of what it may have, of which the newest event always stays
  local length, size = redis.call('XLEN', stream_key), nil
  repeat
    length = math.max(1, math.floor(length / 2))
    redis.call('XTRIM', stream_key, 'MAXLEN', length)
    size = redis.call('MEMORY', 'USAGE', stream_key, 'SAMPLES', 0)
  until length == 1 or size <= stream_bytes / 2
  return size
end

local function append_to(stream_key, known, changed, run, json, part)
  local position
  if part then
    position = redis.call(
      'XADD', stream_key, 'MAXLEN', '~', stream_length, '*', 'run', run, 'event', json, 'part', part)
  else
    position = redis.call('XADD', stream_key, 'MAXLEN', '~', stream_length, '*', 'run', run, 'event', json)
  end
  if not known.first then
    known.first, changed.first = position, position
  end
  local streamed = (tonumber(known.streamed) or 0) + #json + (part and #part or 0)
  known.streamed = streamed > stream_bytes and cut(stream_key) or streamed
  changed.streamed = known.streamed
  return position
end

local root_changes

local function forward(json)
  if root.state and not TERMINAL[root.state] then
    append_to(root_stream, root, root_changes, root.run or '', json)
  end
end

local function emit(event)
  has_published = true
  if event.forwarded ~= '' then
    forward(event.forwarded)
  end
  return append_to(stream, old, new, run_id, event.json, event.part)
end

-- Runs and statuses

local function is_seen(run)
  return (get('runs') or ' '):find(' ' .. run .. ' ', 1, true) ~= nil
end

local function take_over()
  if get('run') ~= run_id then
    new.run = run_id
    if not is_seen(run_id) then
      new.runs = (get('runs') or ' ') .. run_id .. ' '
    end
  end
end

local function is_overtaken()
  return get('run') ~= run_id and is_seen(run_id)
end

local function is_newer(status)
  local at = get('at')
  if not at then
    return true
  end
  if get('run') == run_id then
    local version, step = tonumber(get('version')), tonumber(get('step'))
    return get('status_run') ~= run_id or status.version > version
      or (status.version == version and status.step > step)
  end
  return not is_overtaken() and (not get('run') or tonumber(status.at) > tonumber(at))
end

local function is_current(status)
  return get('status_run') == run_id and tonumber(get('version')) == status.version
    and tonumber(get('step')) == status.step
end

local function add_message(message)
  local id = message.id
  if message.json == '' or added[id] or ids:find(' ' .. id .. ' ', 1, true) then
    return
  end
  added[id] = true
  messages[#messages + 1] = message
end

local function drafts_of_all()
  local names, all = {}, {}
  for id in (get('drafts') or ''):gmatch('%S+') do
    all[#all + 1] = id
    if not drafts[id] and not old['artifact:' .. id] then
      names[#names + 1], names[#names + 2] = 'artifact:' .. id, 'tail:' .. id
    end
  end
  if #names > 0 then
    for name, value in pairs(read_all(view, names)) do
      old[name] = value
    end
  end
  return all
end

-- Artifacts

local function draft_of(id)  -- as it stands now; nil where there is none
  local kept = not drafts[id] and old['artifact:' .. id]
  if kept then
    local position, attempt, next_index, blocks, complete, failed, run, label =
      kept:match('^(%S+) (%S+) (%S+) (%S+) (%d) (%d) ([^\n]*)\n(.*)$')
    drafts[id] = {
      position = tonumber(position), attempt = tonumber(attempt), next = tonumber(next_index),
      blocks = tonumber(blocks), complete = complete == '1', failed = failed == '1', run = run, label = label,
      tail = old['tail:' .. id] or '',
    }
  end
  return drafts[id]
end

local function keep_drafts()
  for id, draft in pairs(drafts) do
    if draft.is_changed then
      new['artifact:' .. id] = table.concat({
        draft.position, draft.attempt, draft.next, draft.blocks, draft.complete and 1 or 0, draft.failed and 1 or 0,
        draft.run,
      }, ' ') .. '\n' .. draft.label
      new['tail:' .. id] = draft.tail
    end
  end
end

local function fail_drafts()
  for _, id in ipairs(drafts_of_all()) do
    local draft = draft_of(id)
    draft.failed, draft.is_changed = not draft.complete, true
  end
end

local function is_continued(draft, chunk)
  return not draft.complete and not draft.failed and draft.run == run_id
    and draft.position == chunk.position and draft.attempt == chunk.attempt and draft.next == chunk.index
end

local function is_overtaken_by(draft, chunk)
  return draft.run ~= run_id or chunk.position > draft.position
    or (chunk.position == draft.position and chunk.attempt > draft.attempt)
end

local function block_field(id, number)
  return 'block:' .. number .. ':' .. id
end

local function begin_draft(before, chunk)
  local id = chunk.artifact_id
  if not before then
    new.drafts = (get('drafts') or '') .. id .. ' '
  end
  for number = 1, before and before.blocks - 1 or 0 do
    new[block_field(id, number)] = nil
    removed[#removed + 1] = block_field(id, number)
  end
  drafts[id] = {
    run = run_id, position = chunk.position, attempt = chunk.attempt, label = chunk.label,
    next = 0, blocks = 0, complete = false, failed = false, tail = '',
  }
  return drafts[id]
end

local function extend_draft(before, chunk)
  if before.complete or before.failed then
    return nil
  end
  before.run, before.position, before.attempt, before.next = run_id, chunk.position, chunk.attempt, 0
  return before
end

local function draft_for(before, chunk)  -- the draft that the chunk is to be appended to; nil drops the chunk
  if before and is_continued(before, chunk) then
    return before
  elseif chunk.index ~= 0 or (before and not is_overtaken_by(before, chunk)) then
    return nil
  elseif chunk.mode == 'extend' then
    return before and extend_draft(before, chunk)
  elseif chunk.mode == 'draft' and before and before.complete and before.run == run_id
    and before.position == chunk.position then
    return nil
  end
  return begin_draft(before, chunk)
end

local function is_continued_text(block, content)
  local kind = content:sub(1, 1)
  return (kind == 't' or kind == 's') and block:sub(1, 1) == kind and #block < BLOCK_SIZE
end

local function append_content(draft, chunk)
  if chunk.content == 't' and draft.blocks > 0 then
    return  -- an empty text adds nothing
  elseif draft.blocks > 0 and is_continued_text(draft.tail, chunk.content) then
    draft.tail = draft.tail .. chunk.content:sub(2)
    return
  elseif draft.blocks > 0 then
    new[block_field(chunk.artifact_id, draft.blocks)] = draft.tail
  end
  draft.blocks, draft.tail = draft.blocks + 1, chunk.content
end

local function append(draft, chunk)
  append_content(draft, chunk)
  draft.next = draft.next + 1
  draft.complete, draft.failed, draft.is_changed = chunk.last, chunk.failed, true
  emit(chunk.event)
end

local function set_status(status)
  if get('step') == '0' and get('message') then
    add_message({id = get('message_id'), json = get('message')})
  end
  for _, message in ipairs(status.received) do
    add_message(message)
  end
  new.status, new.status_run, new.version, new.step = status.event.json, run_id, status.version, status.step .. ''
  new.state, new.at, new.approvers = status.state, status.at, status.approvers
  new.message_id, new.message = status.message.id, status.message.json
  if status.fails_drafts then
    fail_drafts()
  end
end

-- What an operation leaves

local function keep_messages()
  for first = 1, #messages, AT_ONCE do
    local words, texts = {}, {}
    for n = first, math.min(first + AT_ONCE - 1, #messages) do
      words[#words + 1], texts[#texts + 1] = messages[n].id, messages[n].json
    end
    redis.call('RPUSH', history, unpack(texts))
    ids = ids .. table.concat(words, ' ') .. ' '
    new.ids = ids
  end
end

local function write_view()
  keep_drafts()
  keep_messages()
  for first = 1, #removed, AT_ONCE do
    redis.call('HDEL', view, unpack(removed, first, math.min(first + AT_ONCE - 1, #removed)))
  end
  write_all(view, new)
  if root then
    write_all(root_view, root_changes)
  end
end

local function keep_of_sub_agent()
  local is_first = not old.first or new.first
  for key, is_new in pairs({[view] = is_first, [stream] = is_first, [history] = #messages > 0}) do
    if is_new or not held then
      keep(key, time_to_live)
    end
  end
  if not held and root_changes.streamed then
    redis.call('EXPIRE', root_stream, time_to_live)
  end
end

local function live_on(is_open)  -- or expire some time after the end, as does what nobody knows
  local was_held = held
  if is_open and was_held then
    return
  end
  if not (is_open and is_created) then  -- what is new lives for ever
    for _, key in ipairs({view, history, stream}) do
      set_life(key, is_open, time_to_live)
    end
  end
  if is_open ~= was_held then
    hold(is_open, time_to_live)
  end
end

local function finish()
  local is_root = view == root_view
  local is_open = is_root and get('task') and not TERMINAL[get('state')] and true or false
  if is_root and is_open ~= held and has_published then
    new.held = is_open and '1' or '0'
  end
  write_view()
  if is_root and has_published then
    live_on(is_open)
  elseif has_published then
    keep_of_sub_agent()
  end
end

local function answer(done)
  local listing, configs = false, {}
  if listed and view == root_view and get('task') and get('changed') then
    listing = {get('task'), get('changed'), get('at'), get('state'), get('approvers') or ''}
  end
  for _, field in ipairs(listed and push and redis.call('HKEYS', push) or {}) do
    configs[#configs + 1] = field:match('^config:(.*)$')
  end
  return {done, listing, configs}
end

-- Operations

local fold = {}

function fold.status(status)
  take_over()
  if not is_newer(status) then
    listed = listed or is_current(status)  -- who is told again what stands here may have died before it was listed
    return nil
  end
  local before = get('state')
  set_status(status)
  new.changed = emit(status.event)
  listed = true
  return before ~= status.state and status.state or nil
end

function fold.chunk(chunk)
  take_over()
  local draft = draft_for(draft_of(chunk.artifact_id), chunk)
  if draft then
    append(draft, chunk)
  end
end

function fold.narration(event)
  local state = get('state')
  if not state or NARRATED[state] then
    emit(event)
  end
end

function fold.other(event)
  emit(event)  -- a gateway may publish these for a run that is older than one that it does not know yet
end

local take_of = {status = take_status, chunk = take_chunk}

local function publish()  -- did: the states that the task took, which a status need not change
  if is_late(call_record, order) then
    return false, true
  end
  local events, chunks, has_status = {}, {}, false
  while cursor < #given do
    local kind = take()
    local event = (take_of[kind] or take_event)()
    events[#events + 1] = {kind, event}
    has_status = has_status or kind == 'status'
    if kind == 'chunk' then
      chunks[#chunks + 1] = event
    end
  end
  read_view(has_status, chunks)
  if has_status then
    listed = false
  end
  if is_overtaken() then
    return answer({})
  end
  local taken = {}
  for _, event in ipairs(events) do
    taken[#taken + 1] = fold[event[1]](event[2])
  end
  finish()
  return answer(taken)
end

local function put_before_history(first)
  local later, known = redis.call('LRANGE', history, 0, -1), ids
  if #later > 0 then
    redis.call('DEL', history)
  end
  ids = ' '
  for _, message in ipairs(first) do
    add_message(message)
  end
  local n = 0
  for id in known:gmatch('%S+') do
    n = n + 1
    add_message({id = id, json = later[n] or ''})
  end
end

local function fill(static, first)
  new.task = get('task') or static
  put_before_history(first)
end

local function create()
  local created, status, first, static = take(), take_status(), take_list(take_message), take()
  read_view(true, {})
  listed = true
  if get('task') then
    return answer(0)
  end
  fill(static, first)
  local is_first = not get('state')
  if is_first then
    set_status(status)
  end
  is_created = not old.first
  local position = emit({json = created, forwarded = ''})
  new.changed = is_first and position or get('changed')
  finish()
  return answer(1)
end

local function restore_artifact(chunks, replaces_draft)
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
  local is_streaming, status, first, static = take() == '1', take_status(), take_list(take_message), take()
  local artifacts, chunks = take_list(function() return take_list(take_chunk) end), {}
  for n, artifact in ipairs(artifacts) do
    chunks[n] = artifact[1]
  end
  read_view(true, chunks)
  listed = true
  local applies, had_status = is_newer(status), get('status_run')
  if not applies and had_status == run_id and get('message_id') ~= status.message.id then
    table.insert(first, status.message)  -- a newer status replaced it before it was seen here
  end
  fill(static, first)
  if applies and (not get('run') or had_status) then
    take_over()
  end
  for _, artifact in ipairs(artifacts) do
    restore_artifact(artifact, applies and not is_streaming)
  end
  if applies then  -- last: followers get nothing after a terminal status
    set_status(status)
    new.changed = emit(status.event)
  end
  has_published = true
  finish()
  return answer(1)
end

local function end_task()
  local status = take_status()
  read_view(true, {})
  run_id = run_id ~= '' and run_id or get('run') or ''
  if not get('task') or TERMINAL[get('state')] or not is_newer(status) then
    return answer(0)
  end
  if run_id ~= '' then
    take_over()
  end
  set_status(status)
  new.changed = emit(status.event)
  listed = true
  finish()
  return answer(1)
end

for name, operation in pairs({publish = publish, create = create, restore = restore, ['end'] = end_task}) do
  operations['view.' .. name] = function(keys, arguments)
    view, history, stream, root_stream, call_record, push = unpack(keys)
    run_id, time_to_live, stream_length, stream_bytes, order = unpack(arguments, 1, 5)
    stream_bytes = tonumber(stream_bytes)
    given, cursor = arguments, 5
    new, removed, root, root_changes, drafts, added, messages = {}, {}, nil, {}, {}, {}, {}
    has_published, is_created, listed = false, false, nil
    return operation()
  end
end
