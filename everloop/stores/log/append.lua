-- Appends events to the log of a task, except old ones. Their meaning is the fold's (workflows/contract/fold.py).
--
-- KEYS    head (hash), log (stream); those of the client's task, or the same; registry, records, push configs, snapshot (hash)
-- ARGV    run; call, token, order, claims of a lease (`refusal`); seconds; required last position ('': any; otherwise no event
--         counts as old); snapshot of the view after the events ('': none); for each event: fence (JSON), event ('': only the
--         fence), the task of `task-created` or '', event for the log of the client's task or ''
-- Answer  OVERTAKEN; false: refused, or another position; or LISTED_FIELDS of the head (false: lists are up to date), fields of
--         the push configs after a status, number of log entries, bytes since the snapshot, bytes of the snapshot, new states
--
-- A fence names the kind of its event. `status` and `chunk` have a rank, as sortable text: a status must outrank the last one
-- of its run, the first chunk of a draft must outrank the draft before. A chunk that extends may name the required version of
-- the artifact. Other chunks continue a draft, by their index.
local head, log, root_head, root_log, registry, records, push, snapshot = unpack(KEYS)
local run, call, token, order, claims, seconds, expected, made = unpack(ARGV, 1, 8)
local refused = refusal(records, call, token, order, claims)
if refused ~= nil then return refused end

local NAMES = {'run', 'runs', 'state', 'status_run', 'rank', 'version', 'failed', 'first', 'last', 'tail', 'task', 'ids'}
local is, changed = {}, {}
for n, value in ipairs(redis.call('HMGET', head, unpack(NAMES))) do is[NAMES[n]] = value or nil end
local function set(name, value) is[name], changed[#changed + 1], changed[#changed + 2] = value, name, value end
local function is_open() return is.task and is.state and not TERMINAL[is.state] or false end
local function was_followed() return is.runs and is.runs:find(' ' .. run .. ' ', 1, true) end

local is_forced, was_open, is_first = expected ~= '', is_open(), not is.first
if is_forced and (is.last or '0-0') ~= expected then return false end
local is_overtaken = not is_forced and is.run ~= run and was_followed()
local states, is_created, has_status, lists_follow = {}, false, false, false

local function draft(id)  -- state after the last chunk of an artifact: rank, next index, state, run, version
  local text = is['draft:' .. id] or redis.call('HGET', head, 'draft:' .. id) or ' 0 none - '
  local rank, next, state, version, of = text:match('^(%S*) (%d+) (%S+) (%S+) (.*)$')
  return rank, tonumber(next), state == 'open' and of == is.failed and 'failed' or state, of, version
end

local function is_new_chunk(fence)
  local rank, next, state, of, version = draft(fence.id)
  if fence.index > 0 then return of == run and rank == fence.rank and next == fence.index and state == 'open' end
  if of == run and fence.rank <= rank then return false end
  if fence.mode == 'extend' then return state == 'open' and (fence.base == '' or fence.base == version) end
  return not (fence.mode == 'draft' and of == run and state == 'complete' and rank:sub(1, #fence.at) == fence.at)
end

local function is_new(fence)
  if fence.kind == 'chunk' then
    return is_new_chunk(fence)
  elseif fence.kind == 'created' then
    lists_follow = true  -- also if the process that created it died before the lists followed
    return not is.task
  elseif fence.kind == 'narration' then
    return not is.state or is.state == 'submitted' or is.state == 'working'
  elseif fence.kind == 'status' then
    local is_again = is.status_run == run and fence.rank == is.rank  -- a process may have died before the lists followed
    has_status, lists_follow = has_status or is_again, lists_follow or is_again
    return is.status_run ~= run or fence.rank > is.rank
  end
  return true
end

local function follows_loss(fence)  -- true if earlier statuses, or content that this one requires, are missing
  local before = is.status_run and (is.status_run == run or is.status_run == '') and is.version
  if fence.after > tonumber(before or is.status_run and fence.after or 0) then return true end
  for _, id in ipairs(fence.artifacts) do
    if select(3, draft(id)) == 'none' then return true end
  end
  local rank, _, state, of = draft('response')
  return fence.answer and (state ~= 'complete' or of ~= run or rank:sub(1, #fence.answer) < fence.answer)
end

local function take_status(fence, event)
  local is_lost = not is_forced and follows_loss(fence)
  if is.state ~= fence.state then states[#states + 1] = fence.state end
  -- Lists may follow later when a task begins to work: their readers and the sweep check submitted tasks.
  lists_follow = lists_follow or is.state ~= 'submitted' or fence.state ~= 'working'
  set('ids', (is.ids or ' ') .. fence.ids)
  if fence.used then set('used', fence.used) end
  if fence.fails_drafts then set('failed', run) end
  if is_lost then set('lost', '1') end
  set('status_run', run)
  set('rank', fence.rank)
  set('version', fence.version)
  set('state', fence.state)
  set('status', fence.listed)
  set('event', event)
  return is_lost
end

for n = 9, is_overtaken and 0 or #ARGV, 4 do
  local fence, event, opening, forwarded = cjson.decode(ARGV[n]), unpack(ARGV, n + 1, n + 3)
  if is_forced or is_new(fence) then
    if fence.follows and is.run ~= run then
      if not was_followed() then set('runs', (is.runs or ' ') .. run .. ' ') end
      set('run', run)
    end
    local extra, status = {}, (fence.kind == 'status' and fence) or (not is.state and fence.status)
    if fence.kind == 'created' then
      set('task', fence.task)
      set('title', fence.title)
      set('ids', fence.ids .. (is.ids or ' '))
      is_created, lists_follow, extra = is_first, true, opening ~= '' and {'opening', opening} or {}
    elseif fence.kind == 'chunk' then
      set('draft:' .. fence.id, table.concat({fence.rank, fence.index + 1, fence.state, fence.version, run}, ' '))
    end
    if status and take_status(status, status.event or event) then extra = {'lost', '1'} end
    has_status = has_status or fence.kind == 'status'
    if event ~= '' then
      is.last = redis.call('XADD', log, '*', 'run', run, 'event', event, unpack(extra))
      is.first, is.tail = is.first or is.last, (is.tail or 0) + #event + #opening
    end
    if status then set('changed', is.last or '0-0') end
    if forwarded ~= '' and not TERMINAL[redis.call('HGET', root_head, 'state') or 'completed'] then
      redis.call('HSET', root_head, 'last', redis.call('XADD', root_log, '*', 'run', '', 'event', forwarded))
      redis.call('HINCRBY', root_head, 'tail', #forwarded)
    end
  end
end

if made ~= '' then
  redis.call('HSET', snapshot, 'position', is.last or '0-0', 'view', made)
  redis.call('HDEL', head, 'lost')
  keep(registry, snapshot, seconds)
  has_status, lists_follow, is.tail = true, true, 0
end
if is_open() and not was_open and not is_created then set('opened', is.last) end
if is.last then redis.call('HSET', head, 'first', is.first, 'last', is.last, 'tail', is.tail, unpack(changed)) end
if is_first or redis.call('HEXISTS', registry, 'open') == 0 then
  keep(registry, head, seconds)
  keep(registry, log, seconds)
end
if head == root_head and is_open() and not was_open then
  redis.call('HSET', registry, log, seconds)  -- a snapshot lets it expire sooner
  set_open(registry)
elseif head == root_head and was_open and not is_open() then
  set_ended(registry)
end
local listed = lists_follow and head == root_head and is.task
  and redis.call('HMGET', head, 'task', 'changed', 'status', 'status_run', 'title', 'opened', 'used')
return {
  listed or false, has_status and redis.call('HKEYS', push) or {}, redis.call('XLEN', log), is.tail or 0,
  redis.call('HSTRLEN', snapshot, 'view'), unpack(states)}
