-- Precedes the scripts of the gate of a provider.
--
-- Fields of the provider: `time` of the last change; `requests` and `tokens`, the times up to which their rates are used
-- up; `asked:<model>`, the end of a pause of a model; while the breaker is open `open_until`, `pause`, and `probe`, the
-- call that tests the provider.
local state, failures, calls, tickets = unpack(KEYS)
local DAY = 86400000  -- time to live of a provider's state

local function close_breaker()
  redis.call('DEL', failures)
  return redis.call('HDEL', state, 'open_until', 'pause', 'probe') > 0 and 'closed' or ''
end
