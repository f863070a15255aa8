-- Precedes scripts that need the time: in milliseconds, by the clock of Redis, because clocks of processes may differ.
local clock
local function now()
  if not clock then
    local time = redis.call('TIME')
    clock = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return clock
end
