-- Renews the slot of a call of a model.
--
-- KEYS    provider, failures, calls
-- ARGV    call, milliseconds of a slot, 1 if its reply arrives
-- Answer  'closed' if the provider was down until now
redis.call('ZADD', calls, 'XX', now() + ARGV[2], ARGV[1])
if ARGV[3] == '1' and redis.call('HGET', state, 'probe') == ARGV[1] then return close_breaker() end
return ''
