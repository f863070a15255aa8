-- Where the tasks of an owner with one agent are listed. Stands before the scripts that use it, and NOW before it.
--
-- Each list is a sorted set of task ids by the time of the last status: one of all tasks of the agent, one of
-- those in each context, and beside each of them (key:state) one for each state. The expiry list holds
-- "<key of the context's list> <task id>" by the time when the view expires, in milliseconds. Views of open tasks
-- do not expire, nor do lists that have one.

local STATES = {
  'submitted', 'working', 'input-required', 'auth-required', 'completed', 'failed', 'canceled', 'rejected',
}

local OPEN_STATES = {'submitted', 'working', 'input-required', 'auth-required'}

local function set_life(key, is_open, seconds)
  if is_open then
    redis.call('PERSIST', key)
  else
    redis.call('EXPIRE', key, seconds)
  end
end

local function has_open(list)
  for _, state in ipairs(OPEN_STATES) do
    if redis.call('EXISTS', list .. ':' .. state) == 1 then
      return true
    end
  end
  return false
end

local function leave_states(list, task_id)
  for _, state in ipairs(STATES) do
    redis.call('ZREM', list .. ':' .. state, task_id)
  end
end

local function enter_list(list, task_id, at, state, former_state)
  if not former_state then
    leave_states(list, task_id)  -- the view may have expired and come back before its entries were removed
  elseif former_state ~= state then
    redis.call('ZREM', list .. ':' .. former_state, task_id)
  end
  redis.call('ZADD', list, at, task_id)
  redis.call('ZADD', list .. ':' .. state, at, task_id)
end

local function leave_list(list, task_id)
  redis.call('ZREM', list, task_id)
  leave_states(list, task_id)
end

local function remove_expired(agent_list, expiry_list, limit, view_key)  -- returns how many it removed
  local removed = 0
  local due = redis.call('ZRANGEBYSCORE', expiry_list, '-inf', now(), 'LIMIT', 0, limit)
  for _, entry in ipairs(due) do
    local context_list, task_id = entry:match('^(%S+) (.*)$')
    if redis.call('HEXISTS', view_key(task_id), 'task') == 0 then
      leave_list(agent_list, task_id)
      leave_list(context_list, task_id)
      redis.call('ZREM', expiry_list, entry)
      removed = removed + 1
    end
  end
  return removed
end
