-- Stores a snapshot, unless the stored one has a later position, and trims the log.
--
-- KEYS    head, log, snapshot, registry, push configs
-- ARGV    position; snapshot; seconds; seconds that the log lives after the end without and with push configs; maximum of
--         events and of bytes of the log
-- Answer  1 if it is stored, otherwise 0
local head, log, snapshot, registry, push = unpack(KEYS)
local position, view, seconds, log_seconds, pushed_seconds, most, bytes = unpack(ARGV)
local function after(one, other)
  local major, minor = one:match('^(%d+)-(%d+)$')
  local others, least = other:match('^(%d+)-(%d+)$')
  major, others = tonumber(major), tonumber(others)
  return major > others or (major == others and tonumber(minor) > tonumber(least))
end
local before, last = redis.call('HGET', snapshot, 'position') or '0-0', redis.call('HGET', head, 'last')
if not last or after(before, position) then return 0 end
redis.call('HSET', snapshot, 'position', position, 'view', view)
keep(registry, snapshot, seconds)
local tail = 0
for _, entry in ipairs(redis.call('XRANGE', log, '(' .. position, '+')) do tail = tail + #table.concat(entry[2]) end
redis.call('HSET', head, 'tail', tail)
if position ~= last then return 1 end
local length, size = redis.call('XLEN', log), redis.call('MEMORY', 'USAGE', log, 'SAMPLES', 0) or 0
while length > 1 and (length > tonumber(most) or size > tonumber(bytes)) do
  length = math.floor(length / 2)
  redis.call('XTRIM', log, 'MAXLEN', length)
  size = redis.call('MEMORY', 'USAGE', log, 'SAMPLES', 0)
end
if TERMINAL[redis.call('HGET', head, 'state') or ''] then  -- the snapshot covers the log
  local left = redis.call('EXISTS', push) == 1 and pushed_seconds or log_seconds
  redis.call('HSET', registry, log, left)
  keep(registry, log, left)
end
return 1
