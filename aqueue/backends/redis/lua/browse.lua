-- Show jobs without taking them.
-- KEYS: jobs delayed   ARGV: ids
-- Returns {now, payloads, due times}, with nothing for what is gone or not delayed.

local time = redis.call('TIME')
return {
  time[1] * 1000000 + time[2],
  redis.call('HMGET', KEYS[1], unpack(ARGV)),
  redis.call('ZMSCORE', KEYS[2], unpack(ARGV)),
}
