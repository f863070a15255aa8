-- Replaces the push config that was read before.
--
-- KEYS    push configs, registry
-- ARGV    seconds; field, config; config that was read ('': none); field of the position, position ('keep': unchanged);
--         limit of configs; field that is never deleted
-- Answer  1, 0 if there are too many, -1 if the config has changed
local key, registry = unpack(KEYS)
local seconds, field, config, replaced, place, position, most, known = unpack(ARGV)
local before = redis.call('HGET', key, field)
if (before or '') ~= replaced then return -1 end
if not before then
  local count = 0
  for _, name in ipairs(redis.call('HKEYS', key)) do count = count + (name:sub(1, 7) == 'config:' and 1 or 0) end
  if count >= tonumber(most) then return 0 end
end
redis.call('HSET', key, field, config, known, 1)
if position ~= 'keep' then redis.call('HSET', key, place, position) end
keep(registry, key, seconds)
return 1
