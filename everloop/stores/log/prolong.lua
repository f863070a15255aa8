-- Prolongs the lives of keys to a minimum. Keys without an expiry, and missing ones, do not change.
--
-- KEYS  any of one slot
-- ARGV  seconds
for _, key in ipairs(KEYS) do
  local left = redis.call('TTL', key)
  if left >= 0 and left < tonumber(ARGV[1]) then redis.call('EXPIRE', key, ARGV[1]) end
end
