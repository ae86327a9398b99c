-- Show jobs without taking them.
-- KEYS: jobs delayed   ARGV: how many bytes of each payload or -1 for all, then ids
-- Returns {now, payloads, due times}, with nothing for what is gone or not delayed.

local head = tonumber(ARGV[1])
local ids = {}
for at = 2, #ARGV do
  ids[at - 1] = ARGV[at]
end
local payloads = redis.call('HMGET', KEYS[1], unpack(ids))
if head >= 0 then
  for at = 1, #ids do
    payloads[at] = payloads[at] and string.sub(payloads[at], 1, head)
  end
end
local time = redis.call('TIME')
return { time[1] * 1000000 + time[2], payloads, redis.call('ZMSCORE', KEYS[2], unpack(ids)) }
