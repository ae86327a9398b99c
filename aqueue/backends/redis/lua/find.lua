-- Say where one job stands, without taking it. It must not be a pattern: an id has 32 digits (PUSH-9).
-- KEYS: jobs delayed leased counts   ARGV: its id
-- Returns {now, due time or nil, end of its lease or nil, counts or nil}; nothing if it is not held.

local id = ARGV[1]
if redis.call('HEXISTS', KEYS[1], id) == 0 then
  return false
end
local time = redis.call('TIME')
local due, held = redis.call('ZSCORE', KEYS[2], id), false
local cursor = '0'
repeat
  local step = redis.call('ZSCAN', KEYS[3], cursor, 'MATCH', id .. ':*', 'COUNT', '1000')
  cursor = step[1]
  held = step[2][2] or held
until held or cursor == '0'
return { time[1] * 1000000 + time[2], due, held, redis.call('HGET', KEYS[4], id) }
