-- Removes a member of a sorted set, unless it was added again since.
--
-- KEYS  the set, by time
-- ARGV  member, time
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 'inf') <= tonumber(ARGV[2]) then
  redis.call('ZREM', KEYS[1], ARGV[1])
end
