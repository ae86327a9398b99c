-- include records.lua
-- Store failed jobs of another store; the failure of one delivery is kept once (FAIL-1).
-- KEYS: failed order names   ARGV: for each record: id, label, record

local failed, order, names = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('HLEN', failed)
redis.call('ZCARD', names)
local at = next_moment(order, now)
for i = 1, #ARGV, 3 do
  if keep_record(failed, order, names, ARGV[i], ARGV[i + 1], ARGV[i + 2], at) then
    at = at + 1
  end
end
return 1
