-- Store jobs on one queue, each id once (PUSH-3, PUSH-10).
-- KEYS: pending delayed jobs
-- ARGV: channel, then for each job: id, delay in microseconds, payload

local pending, delayed, jobs = KEYS[1], KEYS[2], KEYS[3]
local SOON = 2000000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ready_since = string.format(':%016.0f', now)

-- Every key is read before one is written, so that a key of another type refuses the whole push.
local was_empty = redis.call('LLEN', pending) == 0
redis.call('ZCARD', delayed)
local ids = {}
for at = 2, #ARGV, 3 do
  ids[#ids + 1] = ARGV[at]
end
local held = redis.call('HMGET', jobs, unpack(ids))

local records, ready, later, seen = {}, {}, {}, {}
local is_soon = false
for i, id in ipairs(ids) do
  if not held[i] and not seen[id] then
    seen[id] = true
    records[#records + 1] = id
    records[#records + 1] = ARGV[3 * i + 1]
    local delay = tonumber(ARGV[3 * i])
    if delay > 0 then
      later[#later + 1] = now + delay
      later[#later + 1] = id
      is_soon = is_soon or delay < SOON
    else
      ready[#ready + 1] = id .. ready_since
    end
  end
end
if #records == 0 then
  return 0
end

redis.call('HSET', jobs, unpack(records))
if #ready > 0 then
  redis.call('RPUSH', pending, unpack(ready))
end
if #later > 0 then
  redis.call('ZADD', delayed, unpack(later))
end

-- Whoever waits has found the queue empty, so only its first job needs a hint; a failing hint costs a pause.
if (was_empty and #ready > 0) or is_soon then
  redis.pcall('PUBLISH', ARGV[1], '')
end
return #records / 2
