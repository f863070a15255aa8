-- Appends events to the log of a task, unless they are old. What they come to says the fold (workflows/contract/fold.py).
--
-- KEYS    head (hash), log (stream); those of the client's task above it, or else the same; registry, records, push configs,
--         snapshot (hash)
-- ARGV    run; call, token, order, claims (see `refusal`); seconds; last position to be there ('': any; else no event is old);
--         snapshot as of the end ('': none); of each event: fence (JSON), event ('': only the fence), the task as it begins or
--         '', what the log of the client's task gets or ''
-- Answer  OVERTAKEN; false: refused, or another position; or what lists are to say (false: nothing new), ids of push configs
--         if there is a status, length and bytes of the log, bytes since the snapshot, its bytes, states that the task took

local head, log, root_head, root_log, registry, records, push, snapshot = unpack(KEYS)
local run, call, token, order, claims, seconds, expected, made = unpack(ARGV, 1, 8)
local refused = refusal(records, call, token, order, claims)
if refused ~= nil then return refused end

local function read(key)
  local names, fields = {'run', 'runs', 'state', 'first', 'last', 'tail', 'covered', 'kept', 'task'}, {}
  for n, value in ipairs(redis.call('HMGET', key, unpack(names))) do fields[names[n]] = value or nil end
  return fields
end

local known = read(head)
local is_forced, is_created, has_status, lists_follow, states = expected ~= '', false, false, false, {}
if is_forced and (known.last or '0-0') ~= expected then return false end
local root = head == root_head and known or read(root_head)

local changed = {}
local function set(name, value) known[name], changed[#changed + 1], changed[#changed + 2] = value, name, value end
local function is_open(of) return of.task and of.state and not TERMINAL[of.state] or false end
local function has_followed() return (known.runs or ''):find(' ' .. run .. ' ', 1, true) end
local was_open, is_first, is_overtaken = is_open(known), not known.first, not is_forced and known.run ~= run and has_followed()

local function add(key, fields, by, event, name, value)
  fields.last = redis.call('XADD', key, '*', 'run', by, 'event', event, unpack(name and {name, value} or {}))
  local size = #event + #(value or '')
  fields.first, fields.tail, fields.kept = fields.first or fields.last, (fields.tail or 0) + size, (fields.kept or 0) + size
end
local function write(key, of, ...)
  redis.call('HSET', key, 'first', of.first, 'last', of.last, 'tail', of.tail, 'kept', of.kept, ...)
end

local function status_of()  -- the last one
  local text = known.status or redis.call('HGET', head, 'status')
  return text and cjson.decode(text) or {state = ''}
end

local function draft_of(name)
  local draft, text = {}, known[name] or redis.call('HGET', head, name) or '-1e9 0 0 none '
  draft.position, draft.attempt, draft.next, draft.state, draft.run = text:match('^(%S+) (%S+) (%S+) (%S+) (.*)$')
  draft.position, draft.attempt, draft.next = tonumber(draft.position), tonumber(draft.attempt), tonumber(draft.next)
  return draft
end

local function set_draft(name, draft)
  set(name, table.concat({draft.position, draft.attempt, draft.next, draft.state, draft.run}, ' '))
end

local function is_after(one, less, other, lesser) return one > other or (one == other and less > lesser) end

local is_new = {}  -- kind of a fence → whether its event is not old
function is_new.other() return true end
function is_new.created()
  lists_follow = lists_follow or known.task ~= nil  -- as of a status
  return not known.task
end
function is_new.narration() return ({none = true, submitted = true, working = true})[known.state or 'none'] end
function is_new.status(fence)
  local status = status_of()
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

local function add_ids(first, last)
  set('ids', first .. (known.ids or redis.call('HGET', head, 'ids') or ' ') .. last)
end

local function has_gap(status, fence)  -- whether statuses of the run before this one are lost
  if not status.version then return fence.version > 1 end
  return (status.run == run or status.run == '') and fence.version > status.version + 1
end

local function lacks(fence)  -- whether content that the status requires is lost
  local answer = fence.answer and draft_of('draft:response')
  if answer and not (answer.state == 'complete' and answer.run == run and answer.position >= fence.answer) then return true end
  for _, id in ipairs(fence.artifacts or {}) do
    if draft_of('draft:' .. id).state == 'none' then return true end
  end
  return false
end

local take = {}  -- kind of a fence → what it changes in the head; answers one more field of the entry
function take.other() end
function take.narration() end
function take.status(fence, event)
  local status = status_of()
  local is_lost = not is_forced and (has_gap(status, fence) or lacks(fence))
  if status.state ~= fence.state then states[#states + 1] = fence.state end
  -- Lists need not say at once that a task begins to work: their readers, and the sweep, look at those submitted.
  has_status, lists_follow = true, lists_follow or status.state ~= 'submitted' or fence.state ~= 'working'
  local names = fence.fails_drafts and redis.call('HKEYS', head) or {}
  for name in pairs(fence.fails_drafts and known or {}) do names[#names + 1] = name end
  for _, name in ipairs(names) do
    local draft = name:sub(1, 6) == 'draft:' and draft_of(name)
    if draft and draft.state == 'open' then draft.state = 'failed' set_draft(name, draft) end
  end
  add_ids('', fence.ids)
  fence.run, fence.used, fence.ids, fence.answer, fence.artifacts = run, fence.used or status.used, nil, nil, nil
  set('status', cjson.encode(fence))
  set('state', fence.state)
  set('event', event)
  if is_lost then set('lost', '1') return 'lost', '1' end
end
function take.chunk(fence)
  set_draft('draft:' .. fence.id, {
    position = fence.position, attempt = fence.attempt, next = fence.index + 1, state = fence.state, run = run})
end
function take.created(fence)
  set('task', fence.task)
  set('title', fence.title)
  add_ids(fence.ids, '')
  if not known.state and fence.status then take.status(fence.status, fence.status.event) end
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
    if forwarded ~= '' and root.state and not TERMINAL[root.state] then
      add(root_log, root, root.run or '', forwarded)
    end
  end
end

if made ~= '' then
  has_status, lists_follow, known.tail = true, true, 0
  redis.call('HSET', snapshot, 'position', known.last or '0-0', 'view', made)
  redis.call('HDEL', head, 'lost')
  set('covered', #made)
  keep(registry, snapshot, seconds)
end
local now_open = is_open(known)
if now_open and not was_open and not is_created then set('opened', known.last) end
if known.last then write(head, known, unpack(changed)) end
if known ~= root and root.last then write(root_head, root) end
if is_first or not is_open(root) then
  keep(registry, head, seconds)
  keep(registry, log, seconds)
end
if head == root_head and now_open ~= was_open then
  if now_open then
    redis.call('HSET', registry, log, seconds)  -- a snapshot lets it expire sooner
    set_open(registry)
  else
    set_ended(registry)
  end
end
local listing = lists_follow and head == root_head and known.task
  and redis.call('HMGET', head, 'task', 'changed', 'status', 'title', 'opened')
local configs = has_status and redis.call('HKEYS', push) or {}
return {
  listing or false, configs, redis.call('XLEN', log), known.kept or 0, known.tail or 0, known.covered or 0, unpack(states)}
