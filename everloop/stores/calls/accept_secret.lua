-- Accepts a secret that a message has brought, once. Does not restore a deleted key.
--
-- KEYS    secrets
-- ARGV    fields of the secret of the message, of the accepted secret, and of the mark that it was accepted
-- Answer  1
local brought = redis.call('HGET', KEYS[1], ARGV[1])
if brought and redis.call('HSETNX', KEYS[1], ARGV[3], 1) == 1 then redis.call('HSET', KEYS[1], ARGV[2], brought) end
return 1
