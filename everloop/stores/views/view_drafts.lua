-- Drafts of artifacts: which chunks belong to them, and what they come to.

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
  written = written + #chunk.label
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
  written = written + #chunk.content
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

