-- Discard every job that nobody holds, and forget it whole; never one past its lease (CLEAR-1).
-- KEYS: pending delayed leased jobs counts, then three keys for the time of this script
-- Returns how many went. What is held is copied aside and takes the whole's place, so that the cost is that
-- of what is held, not of what is discarded.

local pending, delayed, leased, jobs, counts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local kept, old = { [jobs] = KEYS[6], [counts] = KEYS[7] }, KEYS[8]
local STEP = 1000

local removed = redis.call('LLEN', pending) + redis.call('ZCARD', delayed)
redis.call('ZCARD', leased)
redis.call('HLEN', jobs)
redis.call('HLEN', counts)
if removed == 0 then
  return 0
end
redis.call('UNLINK', unpack(KEYS, 6)) -- and from here on a full server lets the copies through: see pop.lua

local function held_ids(from)
  local ids = {}
  for _, receipt in ipairs(redis.call('ZRANGE', leased, from, from + STEP - 1)) do
    ids[#ids + 1] = string.sub(receipt, 1, -39)
  end
  return ids
end

local function keep_only_held(key)
  local has_kept = false
  local from, ids = 0, held_ids(0)
  while #ids > 0 do
    local fields = {}
    for i, value in ipairs(redis.call('HMGET', key, unpack(ids))) do
      if value then
        fields[#fields + 1] = ids[i]
        fields[#fields + 1] = value
      end
    end
    if #fields > 0 then
      redis.call('HSET', kept[key], unpack(fields))
      has_kept = true
    end
    from = from + STEP
    ids = held_ids(from)
  end
  if redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, old)
    if has_kept then
      redis.call('RENAME', kept[key], key)
    end
    redis.call('UNLINK', old)
  end
end

keep_only_held(jobs)
keep_only_held(counts)
redis.call('UNLINK', pending, delayed)
return removed
