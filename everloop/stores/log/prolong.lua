-- Lets keys live for some time at least, unless they live for ever, or are gone.
--
-- KEYS  any of one slot
-- ARGV  seconds
for _, key in ipairs(KEYS) do
  local left = redis.call('TTL', key)
  if left >= 0 and left < tonumber(ARGV[1]) then redis.call('EXPIRE', key, ARGV[1]) end
end
