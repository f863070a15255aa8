-- Records the position up to which a client has acknowledged a task.
--
-- KEYS    push configs, registry
-- ARGV    seconds; field and expected config; field of the position, expected position, new one
-- Answer  1, or -1 if the config is another one
local key, registry = unpack(KEYS)
local seconds, field, config, place, from, to = unpack(ARGV)
if redis.call('HGET', key, field) ~= config then return -1 end
if redis.call('HGET', key, place) == from then
  redis.call('HSET', key, place, to)
  keep(registry, key, seconds)
end
return 1
