-- Takes a request from the rate of its owner, if the rate permits it.
--
-- KEYS    rate
-- ARGV    microseconds of one request, and of a burst
-- Answer  microseconds to wait; 0 if it was taken
local cost, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local at = time[1] * 1000000 + time[2]
-- At most a burst from now on: the clock may have been put back.
local used = math.min(tonumber(redis.call('GET', KEYS[1]) or 0), at + burst)
local wait, used_up_to = take(used, at, cost, burst - cost)
if wait > 0 then return math.ceil(wait) end
redis.call('SET', KEYS[1], used_up_to, 'PX', math.ceil((used_up_to - at) / 1000))
return 0
