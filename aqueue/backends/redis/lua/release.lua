-- Swap each job that the named delivery still holds for a waiting one (REL-1).
-- KEYS: pending delayed leased counts
-- ARGV: channel, then for each delivery: receipt, delay in microseconds, 1 to count the attempt or 0
-- Returns the positions, from 0, of the stale ones.

local pending, delayed, leased, counts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SOON = 2000000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local was_empty = redis.call('LLEN', pending) == 0
redis.call('ZCARD', delayed)

local given = {}
for at = 2, #ARGV, 3 do
  given[#given + 1] = ARGV[at]
end
local held = redis.call('ZMSCORE', leased, unpack(given))
local known_counts = redis.call('HLEN', counts) > 0

local function with_one_more_attempt(id)
  local known = known_counts and redis.call('HGET', counts, id) or '0:0'
  local attempts = string.match(known, '^(%d+):%d+$')
  return attempts and string.format('%.0f:0', attempts + 1) or known
end

local stale, receipts, seen = {}, {}, {}
local first, last, later, counted = {}, {}, {}, {}
local is_soon = false
for i, receipt in ipairs(given) do
  if held[i] and not seen[receipt] then
    seen[receipt] = true
    receipts[#receipts + 1] = receipt
    local id, entry = string.sub(receipt, 1, -39), string.sub(receipt, 1, -22)
    local delay, counts_attempt = tonumber(ARGV[3 * i]), ARGV[3 * i + 1] == '1'
    if counts_attempt then
      counted[#counted + 1] = id
      counted[#counted + 1] = with_one_more_attempt(id)
    end
    if delay > 0 then
      later[#later + 1] = now + delay
      later[#later + 1] = id
      is_soon = is_soon or delay < SOON
    elseif counts_attempt then
      last[#last + 1] = id .. string.format(':%016.0f', now)
    else
      table.insert(first, 1, entry)
    end
  else
    stale[#stale + 1] = i - 1
  end
end
if #receipts == 0 then
  return stale
end

redis.call('PERSIST', leased) -- a full server takes back what it holds already: see pop.lua
if #counted > 0 then
  redis.call('HSET', counts, unpack(counted))
end
if #first > 0 then
  redis.call('LPUSH', pending, unpack(first))
end
if #last > 0 then
  redis.call('RPUSH', pending, unpack(last))
end
if #later > 0 then
  redis.call('ZADD', delayed, unpack(later))
end
redis.call('ZREM', leased, unpack(receipts))

if (was_empty and #first + #last > 0) or is_soon then
  redis.pcall('PUBLISH', ARGV[1], '')
end
return stale
