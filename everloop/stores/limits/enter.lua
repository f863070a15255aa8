-- Enters a call of a model at the gate of its provider.
--
-- KEYS    provider, failures, calls, tickets
-- ARGV    call, model; in milliseconds: time since this worker's last answer (negative: none), a slot; concurrency; in
--         milliseconds: a request, its tokens, a burst, a tolerated jump of the clock, a ticket, time until the next look for a slot
-- Answer  reason to wait, and milliseconds; nothing if the call has entered; 'free' if it has entered without being counted
local call, model = ARGV[1], ARGV[2]
local since_answer, slot, most, requests, tokens, burst, slip, ticket, look = unpack(ARGV, 3)
since_answer, most = tonumber(since_answer), tonumber(most)
local costs, time = {requests = tonumber(requests), tokens = tonumber(tokens)}, now()
if (redis.call('HGET', state, 'time') or 0) - time > tonumber(slip) then
  redis.call('DEL', state, failures, calls, tickets)
end
local known = redis.call('HMGET', state, 'open_until', 'pause', 'probe', 'asked:' .. model)
local open_until, probe, later = tonumber(known[1] or 0), known[3], tonumber(known[4] or 0)
local failed = open_until > 0 and open_until - known[2] or tonumber(redis.call('LINDEX', failures, 0) or 0)
if since_answer >= 0 and failed > 0 and failed <= time - since_answer then
  close_breaker()
  open_until, probe, failed = 0, false, 0
end
if open_until > time then return {'down', open_until - time} end
if probe and probe ~= call and (redis.call('ZSCORE', calls, probe) or 0) + 0 > time then return {'down', 5000} end
if later > time then return {'asked', later - time} end
if failed == 0 and most + costs.requests + costs.tokens == 0 then return {'free', 0} end
redis.call('ZREMRANGEBYSCORE', calls, '-inf', time)
redis.call('ZREMRANGEBYSCORE', tickets, '-inf', time - ticket)
-- A call that has to wait books its turn for its next attempt: first come, first served.
local turn = tonumber(redis.call('ZSCORE', tickets, call) or 0)
if turn == 0 then
  turn = time
  for name, cost in pairs(costs) do
    if cost > 0 then
      local wait, used_up_to = take(tonumber(redis.call('HGET', state, name) or 0), time, cost, burst)
      turn = math.max(turn, time + wait)
      redis.call('HSET', state, name, used_up_to)
    end
  end
  redis.call('ZADD', tickets, turn, call)
end
redis.call('HSET', state, 'time', time)
for _, key in ipairs({state, calls, tickets}) do redis.call('PEXPIRE', key, DAY) end
if turn > time then return {'rate', math.ceil(turn - time)} end
if most > 0 and not redis.call('ZSCORE', calls, call) and redis.call('ZCARD', calls) >= most then
  return {'slots', look * (1 + math.floor(redis.call('ZRANK', tickets, call) / most))}
end
redis.call('ZREM', tickets, call)
redis.call('ZADD', calls, time + slot, call)
redis.call('PEXPIRE', calls, DAY)
if open_until > 0 then redis.call('HSET', state, 'probe', call) end
return {}
