-- Count a queue's jobs as the next pop would find them (SIZE-1).
-- KEYS: pending delayed leased order
-- Returns {ready, delayed, leased, failed, age of the oldest ready job in microseconds or -1}

local pending, delayed, leased, order = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local due = redis.call('ZCOUNT', delayed, '-inf', now)
local expired = redis.call('ZCOUNT', leased, '-inf', now)

local oldest = tonumber(string.match(redis.call('LINDEX', pending, 0) or '', ':(%d+)$'))
for _, key in ipairs({ delayed, leased }) do
  local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and first <= now and (not oldest or first < oldest) then
    oldest = first
  end
end
return {
  redis.call('LLEN', pending) + due + expired,
  redis.call('ZCARD', delayed) - due,
  redis.call('ZCARD', leased) - expired,
  redis.call('ZCARD', order),
  oldest and math.max(0, now - oldest) or -1,
}
