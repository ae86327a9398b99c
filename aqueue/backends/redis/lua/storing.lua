-- Storing jobs on one queue, each id once, in two steps: every read comes before the first write, so that a key
-- of another type refuses the whole script.

local SOON = 2000000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ready_since = string.format(':%016.0f', now)

-- Read a queue's keys, and return what to write to them; `at` is where in ARGV its jobs begin.
local function planned(key, at, count)
  local pending, delayed, jobs = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local plan = { pending = pending, delayed = delayed, jobs = jobs, records = {}, ready = {}, later = {} }
  plan.was_empty = redis.call('LLEN', pending) == 0
  redis.call('ZCARD', delayed)
  local ids = {}
  for i = 1, count do
    ids[i] = ARGV[at + 3 * i - 3]
  end
  local held = redis.call('HMGET', jobs, unpack(ids))

  local records, ready, later, seen = plan.records, plan.ready, plan.later, {}
  for i, id in ipairs(ids) do
    if not held[i] and not seen[id] then
      seen[id] = true
      records[#records + 1] = id
      records[#records + 1] = ARGV[at + 3 * i - 1]
      local delay = tonumber(ARGV[at + 3 * i - 2])
      if delay > 0 then
        later[#later + 1] = now + delay
        later[#later + 1] = id
        plan.is_soon = plan.is_soon or delay < SOON
      else
        ready[#ready + 1] = id .. ready_since
      end
    end
  end
  return plan
end

-- Write what was planned, and return how many jobs were stored.
local function carry_out(plan)
  if #plan.records == 0 then
    return 0
  end
  redis.call('HSET', plan.jobs, unpack(plan.records))
  if #plan.ready > 0 then
    redis.call('RPUSH', plan.pending, unpack(plan.ready))
  end
  if #plan.later > 0 then
    redis.call('ZADD', plan.delayed, unpack(plan.later))
  end
  -- Whoever waits has found the queue empty, so only its first job needs a hint; a failing hint costs a pause.
  if (plan.was_empty and #plan.ready > 0) or plan.is_soon then
    redis.pcall('PUBLISH', plan.channel, '')
  end
  return #plan.records / 2
end

