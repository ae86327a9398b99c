-- Start anew each lease that the named delivery still holds; never revive one that passed on (LEASE-3).
-- KEYS: leased   ARGV: lease in microseconds, then receipts
-- Returns the positions, from 0, of the stale ones.

local leased = KEYS[1]
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000000 + time[2] + tonumber(ARGV[1]))
local stale, renewed = {}, {}
for i, until_ in ipairs(redis.call('ZMSCORE', leased, unpack(ARGV, 2))) do
  if until_ then
    renewed[#renewed + 1] = ends
    renewed[#renewed + 1] = ARGV[i + 1]
  else
    stale[#stale + 1] = i - 1
  end
end
if #renewed > 0 then
  redis.call('PERSIST', leased) -- a full server takes renewals too: see pop.lua
  redis.call('ZADD', leased, 'XX', unpack(renewed))
end
return stale
