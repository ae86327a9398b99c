-- include records.lua
-- Swap one failed record for a waiting job with fresh counters; 0 when the record is gone (FAIL-2).
-- KEYS: failed order names pending jobs   ARGV: channel, id, time of the failure, payload

local failed, order, names, pending, jobs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, at = ARGV[2], tonumber(ARGV[3])
if tonumber(redis.call('ZSCORE', order, id)) ~= at then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local was_empty = redis.call('LLEN', pending) == 0
local is_held = redis.call('HEXISTS', jobs, id) == 1
redis.call('HLEN', failed)
redis.call('ZCARD', names)

if not is_held then
  redis.call('HSET', jobs, id, ARGV[4])
  redis.call('RPUSH', pending, id .. string.format(':%016.0f', now))
end
forget_record(failed, order, names, id)
if was_empty and not is_held then
  redis.pcall('PUBLISH', ARGV[1], '')
end
return 1
