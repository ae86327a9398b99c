-- Read the ids of some of a queue's jobs, and nothing of what is in them.
-- KEYS: jobs   ARGV: cursor, about how many
-- Returns {cursor, id, id …}

-- Servers before Redis 7.4 and Valkey 8 can't leave the values out.
local reply = redis.pcall('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2], 'NOVALUES')
local step = 1
if reply.err then
  reply = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
  step = 2
end
local answer = { reply[1] }
for at = 1, #reply[2], step do
  answer[#answer + 1] = reply[2][at]
end
return answer
