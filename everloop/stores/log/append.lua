-- Appends events to the log of a task, unless they are old. What they come to says the fold (workflows/contract/fold.py).
--
-- KEYS    head (hash), log (stream); those of the client's task above it, or else the same; registry, records, push configs,
--         snapshot (hash)
-- ARGV    run; call, token, order, claims (see `refusal`); seconds; last position to be there ('': any; else no event is old);
--         snapshot as of the end ('': none); of each event: fence (JSON), event ('': only the fence), the task as it begins or
--         '', what the log of the client's task gets or ''
-- Answer  OVERTAKEN; false: refused, or another position; or what lists are to say (false: nothing new), ids of push configs
--         if there is a status, length of the log, bytes since the snapshot, its bytes, states that the task took

local head, log, root_head, root_log, registry, records, push, snapshot = unpack(KEYS)
local run, call, token, order, claims, seconds, expected, made = unpack(ARGV)
local refused = refusal(records, call, token, order, claims)
if refused ~= nil then return refused end

local function read(key)
  local names, fields = {'run', 'runs', 'status', 'first', 'last', 'tail', 'task', 'ids'}, {}
  for n, value in ipairs(redis.call('HMGET', key, unpack(names))) do fields[names[n]] = value or nil end
  return fields, fields.status and cjson.decode(fields.status) or {state = ''}
end

local known, status = read(head)
local is_forced, is_created, has_status, lists_follow, states = expected ~= '', false, false, false, {}
if is_forced and (known.last or '0-0') ~= expected then return false end
local root, root_status = known, status
if head ~= root_head then root, root_status = read(root_head) end

local function set(name, value) known[name] = value redis.call('HSET', head, name, value) end
local function is_open() return known.task and status.state ~= '' and not TERMINAL[status.state] or false end
local function has_followed() return (known.runs or ''):find(' ' .. run .. ' ', 1, true) end
local was_open, is_first, is_overtaken = is_open(), not known.first, not is_forced and known.run ~= run and has_followed()

local function add(key, fields, by, event, name, value)
  fields.last = redis.call('XADD', key, '*', 'run', by, 'event', event, unpack(name and {name, value} or {}))
  fields.first, fields.tail = fields.first or fields.last, (fields.tail or 0) + #event + #(value or '')
  redis.call('HSET', key == log and head or root_head, 'first', fields.first, 'last', fields.last, 'tail', fields.tail)
end

local function draft_of(name)
  local text = redis.call('HGET', head, name)
  return text and cjson.decode(text) or {run = '', position = -math.huge, attempt = 0, next = 0, state = ''}
end

local function is_after(one, less, other, lesser) return one > other or (one == other and less > lesser) end

local is_new = {}  -- kind of a fence → whether its event is not old
function is_new.other() return true end
function is_new.created() return not known.task end
function is_new.narration() return ({[''] = true, submitted = true, working = true})[status.state] end
function is_new.status(fence)
  if status.run == run and fence.version == status.version and fence.step == status.step then
    has_status, lists_follow = true, true  -- the writer of the same one may have died before they followed
  end
  return status.run ~= run or is_after(fence.version, fence.step, status.version, status.step)
end
function is_new.chunk(fence)
  local draft = draft_of('draft:' .. fence.id)
  local is_there = draft.run == run and draft.position == fence.position
  if is_there and draft.attempt == fence.attempt and draft.next == fence.index and draft.state == 'open' then return true end
  local is_later = draft.run ~= run or is_after(fence.position, fence.attempt, draft.position, draft.attempt)
  if fence.index > 0 or not is_later then return false end
  if fence.mode == 'extend' then return draft.state == 'open' end
  return not (fence.mode == 'draft' and is_there and draft.state == 'complete')
end

local take = {}  -- kind of a fence → what it changes in the head; answers one more field of the entry
function take.other() end
function take.narration() end
function take.status(fence, event)
  local is_lost = (status.run == run or status.run == '') and fence.version > status.version + 1 and not is_forced
  if status.state ~= fence.state then states[#states + 1] = fence.state end
  -- Lists need not say at once that a task begins to work: their readers, and the sweep, look at those submitted.
  has_status, lists_follow = true, lists_follow or status.state ~= 'submitted' or fence.state ~= 'working'
  for _, name in ipairs(fence.fails_drafts and redis.call('HKEYS', head) or {}) do
    local draft = name:sub(1, 6) == 'draft:' and draft_of(name)
    if draft and draft.state == 'open' then draft.state = 'failed' set(name, cjson.encode(draft)) end
  end
  set('ids', (known.ids or ' ') .. fence.ids)
  fence.run, fence.used, fence.ids = run, fence.used or status.used, nil
  status = fence
  set('status', cjson.encode(status))
  set('event', event)
  if is_lost then set('lost', '1') return 'lost', '1' end
end
function take.chunk(fence)
  local draft = {run = run, position = fence.position, attempt = fence.attempt, next = fence.index + 1, state = fence.state}
  set('draft:' .. fence.id, cjson.encode(draft))
end
function take.created(fence)
  set('task', fence.task)
  set('title', fence.title)
  set('ids', fence.ids .. (known.ids or ' '))
  if status.state == '' and fence.status then take.status(fence.status, fence.status.event) end
  is_created, lists_follow, has_status = is_first, true, false  -- nobody is notified of a beginning
end

for n = 9, is_overtaken and 0 or #ARGV, 4 do
  local fence, event, opening, forwarded = cjson.decode(ARGV[n]), unpack(ARGV, n + 1, n + 3)
  if is_forced or is_new[fence.kind](fence) then
    if fence.follows and known.run ~= run then
      set('runs', (known.runs or ' ') .. (has_followed() and '' or run .. ' '))
      set('run', run)
    end
    local before = known.status
    local name, value = take[fence.kind](fence, event)
    if opening ~= '' then name, value = 'opening', opening end
    if event ~= '' then add(log, known, run, event, name, value) end
    if known.status ~= before then set('changed', known.last) end
    if forwarded ~= '' and root_status.state ~= '' and not TERMINAL[root_status.state] then
      add(root_log, root, root.run or '', forwarded)
    end
  end
end

if made ~= '' then
  has_status, lists_follow = true, true
  redis.call('HSET', snapshot, 'position', known.last or '0-0', 'view', made)
  redis.call('HDEL', head, 'lost')
  set('tail', 0)
  keep(registry, snapshot, seconds)
end
if next(known) then
  if head == root_head and is_open() ~= was_open then
    if is_open() then
      if not is_created then set('opened', known.last) end
      redis.call('HSET', registry, log, seconds)  -- a snapshot lets it expire sooner
      set_open(registry)
    else
      set_ended(registry)
    end
  end
  keep(registry, head, seconds)
  keep(registry, log, seconds)
end
local listing = lists_follow and head == root_head and known.task
  and redis.call('HMGET', head, 'task', 'changed', 'status', 'title', 'opened')
local configs = has_status and redis.call('HKEYS', push) or {}
return {
  listing or false, configs, redis.call('XLEN', log), known.tail or 0, redis.call('HSTRLEN', snapshot, 'view'), unpack(states)}
