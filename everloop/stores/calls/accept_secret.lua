-- Accepts a secret that a message has brought, once. It brings no key back.
--
-- KEYS    secrets
-- ARGV    fields of what was brought, of what is accepted, and of its having been accepted
-- Answer  1
local brought = redis.call('HGET', KEYS[1], ARGV[1])
if brought and redis.call('HSETNX', KEYS[1], ARGV[3], 1) == 1 then redis.call('HSET', KEYS[1], ARGV[2], brought) end
return 1
