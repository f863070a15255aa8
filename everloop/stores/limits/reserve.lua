-- Announces a task, or a schedule, unless its owner has too many.
--
-- KEYS    announced ids (sorted set, by the time until which they count); for a task also the rows of its owner
-- ARGV    id, limit, milliseconds that it counts; for a schedule the ids that Temporal lists
-- Answer  1, or 0 if there are too many
local announced, rows = unpack(KEYS)
local id, most, reserved = unpack(ARGV)
if rows and redis.call('ZLEXCOUNT', rows, '[t ' .. id .. ' ', '(t ' .. id .. '!') > 0 then return 1 end
redis.call('ZREMRANGEBYSCORE', announced, '-inf', now())
local count, counted = rows and redis.call('ZLEXCOUNT', rows, '[o ', '(o!') or 0, {}
for _, ids in ipairs({{unpack(ARGV, 4)}, redis.call('ZRANGE', announced, 0, -1)}) do
  for _, other in ipairs(ids) do
    count, counted[other] = count + (counted[other] and 0 or 1), true
  end
end
if not counted[id] and count >= tonumber(most) then return 0 end
redis.call('ZADD', announced, now() + reserved, id)
redis.call('PEXPIRE', announced, reserved)
return 1
