-- Changes the view, history and stream of one task. What is listed of it follows in another step (task_lists.lua).
-- The rules stand in workflows/contract/events.py; tests/support/fold.py is the same in Python.
-- view_fields.lua and view_drafts.lua stand before this.

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

local function follows_loss(status)  -- whether Redis has lost what this run said before it: it counts its statuses
  local known = get('status_run')
  if not known then
    return status.version > 1
  end
  return (known == run_id or known == '') and status.version > tonumber(get('version')) + 1
end

local function shown_by(statuses)  -- the ids of artifacts that views show which have these
  local ids = {}
  for _, status in ipairs(statuses) do
    for _, id in ipairs(status.artifacts) do
      ids[#ids + 1] = id
    end
    if status.answer ~= '' then
      ids[#ids + 1] = 'response'
    end
  end
  return ids
end

local function lacks(status)  -- whether Redis has lost what the view shows besides this status
  if status.answer ~= '' then
    local answer = draft_of('response')
    if not (answer and answer.complete and answer.run == run_id and answer.position >= tonumber(status.answer)) then
      return true
    end
  end
  for _, id in ipairs(status.artifacts) do
    if not draft_of(id) then
      return true
    end
  end
  return false
end

local function add_message(message)
  local id = message.id
  if message.json == '' or added[id] or ids:find(' ' .. id .. ' ', 1, true) then
    return
  end
  added[id] = true
  messages[#messages + 1] = message
  written = written + #message.json
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
  new.used = status.used ~= '' and status.used or nil  -- one that a gateway has found out does not say
  new.message_id, new.message = status.message.id, status.message.json
  written = written + #status.event.json + #status.message.json
  if status.fails_drafts then
    fail_drafts()
  end
end

-- What an operation leaves

local function keep_messages()
  local words, texts, size = {}, {}, 0
  for n, message in ipairs(messages) do
    words[n], texts[n], size = message.id, message.json, size + #message.json
  end
  if #messages > 0 and ids == ' ' and size <= BLOCK_SIZE then
    new.begun = table.concat(texts, '\n')  -- JSON has no line breaks
  else
    for first = 1, #texts, AT_ONCE do
      redis.call('RPUSH', history, unpack(texts, first, math.min(first + AT_ONCE - 1, #texts)))
      new.more = '1'
    end
  end
  if #messages > 0 then
    ids = ids .. table.concat(words, ' ') .. ' '
    new.ids = ids
  end
end

local function write_view()
  keep_drafts()
  keep_messages()
  if written > 0 and (old.written or new.first) then
    new.written = ('%.0f'):format((old.written or 0) + written)
  end
  for first = 1, #removed, AT_ONCE do
    redis.call('HDEL', view, unpack(removed, first, math.min(first + AT_ONCE - 1, #removed)))
  end
  if not root then
    add_names()
    new.kept = names ~= old.kept and names or nil
  end
  write_all(view, new)
  if root then
    write_all(root_view, root_changes)
  end
end

local function life_of_stream()
  return (is_named('push') or is_named('?')) and lives.pushed or lives.stream
end

local function keep_of_sub_agent()
  local is_first = not old.first or new.first
  for key, is_new in pairs({[view] = is_first, [stream] = is_first, [history] = get('more') and new.more ~= nil}) do
    if is_new or not held then
      keep(key, key == stream and lives.stream or lives.view)
    end
  end
  if not held and root_changes.streamed then
    redis.call('EXPIRE', root_stream, life_of_stream())
  end
end

local function live_on(is_open)  -- or expire some time after the end, as does what nobody knows
  local was_held = held
  if is_open and was_held then
    return
  end
  if not (is_open and is_created and not old.kept) then  -- what is new lives for ever
    set_life(view, is_open, lives.view)
    set_life(stream, is_open, life_of_stream())
    if get('more') then
      set_life(history, is_open, lives.view)
    end
  end
  if is_open ~= was_held then
    hold(is_open, lives.view)
  end
end

local function finish()
  local is_root = view == root_view
  local is_open = is_root and get('task') and not TERMINAL[get('state')] and true or false
  if is_root and is_open ~= held and has_published then
    new.held = is_open and '1' or '0'
    new.opened = is_open and not is_created and new.last or nil
  end
  write_view()
  if is_root and has_published then
    live_on(is_open)
  elseif has_published then
    keep_of_sub_agent()
  end
end

local function answer(done, is_status)  -- who creates a task notifies nobody
  local listing, configs = false, {}
  if listed and view == root_view and get('task') and get('changed') then
    listing = {
      get('task'), get('changed'), get('at'), get('state'), get('approvers') or '', get('title') or '', get('used') or '',
      get('opened') or '',
    }
  end
  local has_push = is_status and push and is_named('push')
  for _, field in ipairs(has_push and redis.call('HKEYS', push) or {}) do
    configs[#configs + 1] = field:match('^config:(.*)$')
  end
  return {done, listing, configs}
end

-- Operations

local fold = {}

function fold.status(status)
  take_over()
  if not is_newer(status) then
    -- Who is told again what stands here may have died before anybody else heard of it.
    has_status = has_status or is_current(status)
    listed = listed or has_status
    return nil
  end
  local before, has_lost = get('state'), follows_loss(status) or lacks(status)
  set_status(status)
  if has_lost then
    new.lost = '1'
  end
  new.changed, has_status = emit(status.event, has_lost), true
  -- Lists need not follow at once where a task just begins to work: whoever reads them, or sweeps, sees to that.
  listed = not (before == 'submitted' and status.state == 'working')
  return before ~= status.state and status.state or nil
end

function fold.chunk(chunk)
  local draft = draft_for(draft_of(chunk.artifact_id), chunk)
  if draft then
    take_over()
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

local function shows_artifacts()  -- besides the reply of the model
  local shown = get('drafts')
  return shown and shown ~= 'response '
end

local function publish(is_bare)  -- did: the states that the task took, which a status need not change
  if is_late(records, call, order) then
    return false, OVERTAKEN
  end
  local events, chunks, statuses = {}, {}, {}
  while cursor < #given do
    local kind = take()
    local event = (take_of[kind] or take_event)()
    events[#events + 1] = {kind, event}
    if kind == 'status' then
      statuses[#statuses + 1] = event
    elseif kind == 'chunk' then
      chunks[#chunks + 1] = event
    end
  end
  read_view(#statuses > 0, chunks, shown_by(statuses))
  if is_bare and shows_artifacts() then
    return false, true
  elseif is_overtaken() then
    return answer({})
  end
  local taken = {}
  for _, event in ipairs(events) do
    taken[#taken + 1] = fold[event[1]](event[2])
  end
  finish()
  return answer(taken, has_status)
end

local function take_history()  -- all of it, to be written anew
  local taken = {}
  for message in (redis.call('HGET', view, 'begun') or ''):gmatch('[^\n]+') do
    taken[#taken + 1] = message
  end
  for _, message in ipairs(old.more and redis.call('LRANGE', history, 0, -1) or {}) do
    taken[#taken + 1] = message
  end
  redis.call('DEL', history)
  redis.call('HDEL', view, 'begun', 'more')
  old.more = nil
  return taken
end

local function put_before_history(first)
  local known = ids
  local later = known ~= ' ' and take_history() or {}
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

local function fill(static, title, first)
  new.task, new.title = get('task') or static, get('title') or title
  put_before_history(first)
end

local function create()
  local created, status, first, static, title = take(), take_status(), take_list(take_message), take(), take()
  local most = tonumber(take())  -- who creates a task that was unknown, and has no more, knows how it stands
  read_view(true, {})
  listed = true
  if get('task') then
    return answer(0)
  end
  fill(static, title, first)
  local is_first = not get('state')
  if is_first then
    set_status(status)
  end
  is_created = not old.first
  if is_created and not old.kept then
    names = ''  -- there was nothing before
  end
  local position = emit({json = created, forwarded = ''})
  new.changed = is_first and position or get('changed')
  finish()
  return answer(1), view == root_view and is_created and is_first and written <= most / 2
end

local function restore_artifact(chunks, applies, is_again)  -- again: what stands there may have been lost since
  local draft, first = draft_of(chunks[1].artifact_id), chunks[1]
  if first.position < 0 then  -- the store has it
    if draft and (draft.complete or not (applies or (is_again and draft.position >= 0))) then
      return
    end
  elseif draft and draft.complete and draft.run == run_id and draft.position >= first.position then
    return
  end
  draft = begin_draft(draft, first)
  for _, chunk in ipairs(chunks) do
    append(draft, chunk)
  end
end

local function restore()
  local is_streaming, status, first = take() == '1', take_status(), take_list(take_message)
  local static, title = take(), take()
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
  fill(static, title, first)
  if applies and (not get('run') or had_status) then
    take_over()
  end
  for _, artifact in ipairs(artifacts) do
    restore_artifact(artifact, applies and not is_streaming, is_current(status) and not NARRATED[get('state')])
  end
  if applies then  -- last: followers get nothing after a terminal status
    set_status(status)
    new.changed = emit(status.event)
  end
  if old.lost then
    removed[#removed + 1] = 'lost'
  end
  has_published = true
  finish()
  return answer(1, true)
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
  return answer(1, true)
end

local function publish_bare()  -- only if no artifacts are shown; false: they are
  return publish(true)
end

local all = {publish = publish, publish_bare = publish_bare, create = create, restore = restore, ['end'] = end_task}
for name, operation in pairs(all) do
  operations['view.' .. name] = function(keys, arguments)
    take_all(keys, arguments)
    new, removed, root, root_changes, drafts, added, messages = {}, {}, nil, {}, {}, {}, {}
    has_published, has_status, is_created, listed, written = false, false, false, false, 0
    return operation()
  end
end
