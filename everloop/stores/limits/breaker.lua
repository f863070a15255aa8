-- Stands before the scripts of the gate of a provider.
--
-- Fields of the provider: `time` of the last change; `requests` and `tokens`, up to when their rates are used up; `asked:<model>`,
-- when it may be asked for a model again; while the breaker is open `open_until`, `pause`, and `probe`, the call that finds out.
local state, failures, calls, tickets = unpack(KEYS)
local DAY = 86400000  -- as long as what is known of a provider lives

local function close_breaker()
  redis.call('DEL', failures)
  return redis.call('HDEL', state, 'open_until', 'pause', 'probe') > 0 and 'closed' or ''
end
