-- Secrets that clients have brought (hash). What its fields mean stands in secrets.py.

-- arguments: time to live in seconds, field of what is brought, secret
operations['secret.put'] = function(keys, arguments)
  redis.call('HSET', keys[1], arguments[2], arguments[3])
  keep(keys[1], arguments[1])
end

-- arguments: fields of what was brought, of what is accepted, and of who was accepted. It brings no task back.
operations['secret.accept'] = function(keys, arguments)
  local brought = redis.call('HGET', keys[1], arguments[1])
  if brought and redis.call('HSETNX', keys[1], arguments[3], 1) == 1 then
    redis.call('HSET', keys[1], arguments[2], brought)
  end
end
