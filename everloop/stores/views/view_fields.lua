-- The view, history and stream of one task, as operations change them. task_views.lua stands behind this, view_drafts.lua
-- between them.
--
-- keys       view (hash), history (list), stream; stream of the client's task above it, or else its own; records of
--            calls; push configs of the task (hash), where somebody is to be notified
-- arguments  run id, time to live in seconds, that of the stream, and where somebody is to be notified, its length and its
--            bytes, call for which is published and order of its attempt (empty: it holds no lease), then those of the
--            operation (the take_* functions name them)
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
--   opened                              position of the event by which it opened, if it did not begin with it
--   kept                                which other keys it has, and how long they live after its end (steps.lua)
--   run, runs                           the newest run; every run that was ever seen
--   status, status_run, version, step, state, at, message_id, message    the last status
--   lost                                1 while only the workflow and the stores know what it lacks, which Redis has lost
--   approvers                           scopes whose holders it asks
--   used                                tokens in and out, cost in billionths of a dollar, 1 if that is not known
--   title                               how its first message begins
--   changed                             its position in the stream
--   begun, more                         the first messages, a line each, if they are short; 1 if the list has the next ones
--   ids                                 words: the ids of all of them
--   drafts                              words: the ids of the artifacts, in order
--   artifact:<id>                       the current draft of one: numbers and flags, its run, and in the next line what
--                                       it is called (draft_of tells)
--   block:<n>:<id>, tail:<id>           its content, the last block being the tail: 't' and text, 's' and texts that
--                                       are encrypted, one by one, or 'd' and a part as JSON
--   first                               position of the first event that was ever in the stream
--   last                                position of the last event
--   streamed                            bytes of the stream, about: exact when it was last cut
--   written                             bytes of all messages and contents that were ever written: it has no more

local BLOCK_SIZE = 4096  -- a text chunk is appended to a block, so that its cost does not grow with the text
local AT_ONCE = 1000  -- Lua's stack holds only so many arguments of a command
local NARRATED = {submitted = true, working = true}
local TERMINAL = {completed = true, failed = true, canceled = true, rejected = true}
local OF_EVENTS = {
  'task', 'held', 'run', 'runs', 'state', 'drafts', 'first', 'streamed', 'written', 'kept', 'more',
}
local OF_STATUSES = {
  'changed', 'status_run', 'version', 'step', 'at', 'message_id', 'message', 'approvers', 'ids', 'title', 'used',
  'lost', 'opened',
}
local OF_ROOT = {'state', 'run', 'held', 'first', 'streamed', 'kept'}

local view, history, stream, root_stream, records, push
local run_id, lives, stream_length, stream_bytes, call, order
local given, cursor
local old, new, removed, root  -- fields of the view, and of the client's task above it
local drafts, ids, added, messages, has_published, has_status, is_created, listed, written

local function take_all(keys, arguments)  -- that an operation is given; its own arguments are taken one by one
  view, history, stream, root_stream, records, push = unpack(keys)
  run_id, stream_length, stream_bytes = arguments[1], arguments[5], tonumber(arguments[6])
  lives = {view = arguments[2], stream = arguments[3], pushed = arguments[4]}
  call, order = arguments[7], arguments[8]
  given, cursor = arguments, 8
end

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
    message = take_message(), received = take_list(take_message), approvers = take(), used = take(),
    answer = take(), artifacts = take_list(take),  -- position of the whole reply that is shown ('': none); ids
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

local function read_view(has_status, chunks, shown)  -- shown: the ids of artifacts that have to be there
  local names = {unpack(OF_EVENTS)}
  for _, id in ipairs(shown or {}) do
    names[#names + 1], names[#names + 2] = 'artifact:' .. id, 'tail:' .. id
  end
  for _, name in ipairs(has_status and OF_STATUSES or {}) do
    names[#names + 1] = name
  end
  for _, chunk in ipairs(chunks) do
    names[#names + 1], names[#names + 2] = 'artifact:' .. chunk.artifact_id, 'tail:' .. chunk.artifact_id
  end
  old = read_all(view, names)
  if view == root_view then
    read_names(old.held, old.kept, old.first)
  else
    root = read_all(root_view, OF_ROOT)
    read_names(root.held, root.kept, root.first)
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

local function append_to(stream_key, known, changed, run, json, name, part)  -- and a field of this name, if there is one
  local position
  if part then
    position = redis.call(
      'XADD', stream_key, 'MAXLEN', '~', stream_length, '*', 'run', run, 'event', json, name, part)
  else
    position = redis.call('XADD', stream_key, 'MAXLEN', '~', stream_length, '*', 'run', run, 'event', json)
  end
  if not known.first then
    known.first, changed.first = position, position
  end
  local streamed = (tonumber(known.streamed) or 0) + #json + (part and #part or 0)
  known.streamed = streamed > stream_bytes and cut(stream_key) or streamed
  changed.streamed, changed.last = known.streamed, position
  return position
end

local root_changes

local function forward(json)
  if root.state and not TERMINAL[root.state] then
    append_to(root_stream, root, root_changes, root.run or '', json)
  end
end

local function emit(event, follows_loss)
  has_published = true
  if event.forwarded ~= '' then
    forward(event.forwarded)
  end
  if follows_loss then
    return append_to(stream, old, new, run_id, event.json, 'lost', '1')
  end
  return append_to(stream, old, new, run_id, event.json, 'part', event.part)
end

