-- include records.lua
-- Remove failed records for good; one that was replaced since is another record and stays (FAIL-2).
-- KEYS: failed order names   ARGV: for each record: id, time of the failure
-- Returns how many this call removed.

local failed, order, names = KEYS[1], KEYS[2], KEYS[3]
local removed = 0
redis.call('HLEN', failed)
redis.call('ZCARD', names)
for i = 1, #ARGV, 2 do
  if tonumber(redis.call('ZSCORE', order, ARGV[i])) == tonumber(ARGV[i + 1]) then
    forget_record(failed, order, names, ARGV[i])
    removed = removed + 1
  end
end
return removed
