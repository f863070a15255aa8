-- Stores the secret of a message.
--
-- KEYS    secrets, registry
-- ARGV    seconds, field, secret
-- Answer  1
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
keep(KEYS[2], KEYS[1], ARGV[1])
return 1
