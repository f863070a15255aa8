-- Removes a call of a model from the gate of its provider.
--
-- KEYS    provider, failures, calls
-- ARGV    call, model, milliseconds since this worker's last answer (negative: none), outcome; milliseconds of its tokens
--         beyond the estimate, and of the pause that the provider requests; number of failures that open the breaker, and
--         the milliseconds within which they count; milliseconds of the first pause, and of the longest
-- Answer  'closed', 'opened' or nothing
local call, model, since_answer, outcome, tokens, asked, most, within, first, longest = unpack(ARGV)
local time = now()
since_answer, most = tonumber(since_answer), tonumber(most)
redis.call('ZREM', calls, call)
if tonumber(tokens) ~= 0 then redis.call('HINCRBYFLOAT', state, 'tokens', tokens) end
if tonumber(asked) > 0 then
  redis.call('HSET', state, 'asked:' .. model, time + asked, 'time', time)
  redis.call('PEXPIRE', state, DAY)
end
if outcome == 'answered' or outcome == 'busy' then return close_breaker() end
if outcome ~= 'down' then return '' end
local pause = tonumber(redis.call('HGET', state, 'pause') or 0)
if pause == 0 then
  redis.call('LPUSH', failures, time)
  redis.call('LTRIM', failures, 0, most - 1)
  redis.call('PEXPIRE', failures, within)
  local oldest = tonumber(redis.call('LINDEX', failures, most - 1) or 0)
  if oldest < time - within or (since_answer >= 0 and oldest <= time - since_answer) then return '' end
elseif redis.call('HGET', state, 'probe') ~= call then
  return ''
end
pause = pause == 0 and tonumber(first) or math.min(2 * pause, tonumber(longest))
redis.call('HSET', state, 'pause', pause, 'open_until', time + pause, 'time', time)
redis.call('PEXPIRE', state, DAY)
redis.call('DEL', failures)
return 'opened'
