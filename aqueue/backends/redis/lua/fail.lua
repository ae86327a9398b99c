-- include records.lua
-- Swap each job that the named delivery still holds for its failed record (FAIL-1).
-- KEYS: leased jobs counts failed order names, and where it is in reach the registry of queues
-- ARGV: queue, then for each delivery: receipt, label, record
-- Returns the positions, from 0, of the stale ones.

local leased, jobs, counts, failed, order, names = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

for _, key in ipairs({ jobs, counts, failed }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', names)
if KEYS[7] then
  redis.call('SCARD', KEYS[7])
end
local at = next_moment(order, now)
local given = {}
for i = 2, #ARGV, 3 do
  given[#given + 1] = ARGV[i]
end

local stale, receipts, ids, seen = {}, {}, {}, {}
for i, until_ in ipairs(redis.call('ZMSCORE', leased, unpack(given))) do
  local receipt = given[i]
  if until_ and not seen[receipt] then
    seen[receipt] = true
    if #receipts == 0 then
      redis.call('PERSIST', leased) -- a full server can set aside what it holds already: see pop.lua
      if KEYS[7] then
        redis.call('SADD', KEYS[7], ARGV[1])
      end
    end
    local id = string.sub(receipt, 1, -39)
    if keep_record(failed, order, names, id, ARGV[3 * i], ARGV[3 * i + 1], at) then
      at = at + 1
    end
    receipts[#receipts + 1] = receipt
    ids[#ids + 1] = id
  else
    stale[#stale + 1] = i - 1
  end
end
if #receipts > 0 then
  redis.call('ZREM', leased, unpack(receipts))
  redis.call('HDEL', jobs, unpack(ids))
  redis.call('HDEL', counts, unpack(ids))
end
return stale
