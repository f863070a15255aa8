-- Notes up to where a client has acknowledged a task.
--
-- KEYS    push configs, registry
-- ARGV    seconds; field, config that has to be there; field of the position, position that has to be there, new one
-- Answer  1, or -1 if another config is there
local key, registry = unpack(KEYS)
local seconds, field, config, place, from, to = unpack(ARGV)
if redis.call('HGET', key, field) ~= config then return -1 end
if redis.call('HGET', key, place) == from then
  redis.call('HSET', key, place, to)
  keep(registry, key, seconds)
end
return 1
