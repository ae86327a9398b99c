-- Say whether queues hold anything a pop would find, and else when they will.
-- KEYS: for each queue: pending delayed leased
-- Returns {now, next due time, 0 for never}; a time that is not after `now` means at once.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local next_due = 0
for at = 1, #KEYS, 3 do
  if redis.call('LLEN', KEYS[at]) > 0 then
    return { now, now }
  end
  for _, key in ipairs({ KEYS[at + 1], KEYS[at + 2] }) do
    local first = tonumber(redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
    if first and (next_due == 0 or first < next_due) then
      next_due = first
    end
  end
end
return { now, next_due }
