-- Reads a push config, and restarts the time to live of its task's configs.
--
-- KEYS    push configs, registry
-- ARGV    seconds, field
-- Answer  the config, or false
local config = redis.call('HGET', KEYS[1], ARGV[2])
if config then keep(KEYS[2], KEYS[1], ARGV[1]) end
return config
