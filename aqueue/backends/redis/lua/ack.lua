-- Remove each job that the named delivery still holds (FENCE-1).
-- KEYS: leased jobs counts   ARGV: receipts
-- Returns the positions, from 0, of the stale ones.

local leased, jobs, counts = KEYS[1], KEYS[2], KEYS[3]
local stale, receipts, ids, seen = {}, {}, {}, {}
redis.call('HLEN', jobs)
local has_counts = redis.call('HLEN', counts) > 0
for i, until_ in ipairs(redis.call('ZMSCORE', leased, unpack(ARGV))) do
  local receipt = ARGV[i]
  if until_ and not seen[receipt] then
    seen[receipt] = true
    receipts[#receipts + 1] = receipt
    ids[#ids + 1] = string.sub(receipt, 1, -39)
  else
    stale[#stale + 1] = i - 1
  end
end
if #receipts > 0 then
  redis.call('ZREM', leased, unpack(receipts))
  redis.call('HDEL', jobs, unpack(ids))
  if has_counts then
    redis.call('HDEL', counts, unpack(ids))
  end
end
return stale
