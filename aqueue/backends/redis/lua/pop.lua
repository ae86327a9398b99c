-- Sweep queues in order: make due jobs ready, take expired leases back, hand out up to a limit.
-- (POP-2, LEASE-2)
-- KEYS: for each queue: pending delayed leased jobs counts
-- ARGV: limit, lease in microseconds, token of this hand-out
-- Returns {now, the next due time on these queues or 0, and for each queue that gave something
-- {its number, entries, payloads, counts or nil}}

local PER_SWEEP = '100' -- texts are passed on faster than numbers
local FIRST_STEP = 8
local MOST_BYTES = 8 * 1024 * 1024

local limit, lease, token = tonumber(ARGV[1]), tonumber(ARGV[2]), ':' .. ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_text = string.format('%.0f', now)

local reply, left = { now, 0 }, limit

-- A full server refuses what may grow, but only as a script's first write: after this write of nothing, a
-- queue can still be drained.
local is_writing = false
local function begin_writing(key)
  if not is_writing then
    redis.call('PERSIST', key)
    is_writing = true
  end
end

-- Say whether anything in a sorted set is due, and note when the first will be.
local function has_due(key)
  local first = tonumber(redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
  if first and first > now and (reply[2] == 0 or first < reply[2]) then
    reply[2] = first
  end
  return first and first <= now
end

local function due_in(key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now_text, 'WITHSCORES', 'LIMIT', '0', PER_SWEEP)
end

local function promote(pending, delayed)
  local due = due_in(delayed)
  local entries, ids = {}, {}
  for at = 1, #due, 2 do
    ids[#ids + 1] = due[at]
    entries[#entries + 1] = due[at] .. string.format(':%016.0f', due[at + 1])
  end
  begin_writing(delayed)
  redis.call('RPUSH', pending, unpack(entries))
  redis.call('ZREM', delayed, unpack(ids))
end

local function with_one_more_lost(counts)
  local attempts, lost = string.match(counts or '0:0', '^(%d+):(%d+)$')
  if not attempts then
    return counts -- out of range: left as it is, to be set aside by whoever reads it
  end
  return string.format('%.0f:%.0f', attempts + 1, lost + 1)
end

local function take_back(pending, leased, counts)
  local expired = due_in(leased)
  local members, entries, ids = {}, {}, {}
  for at = 1, #expired, 2 do
    members[#members + 1] = expired[at]
    local id = string.sub(expired[at], 1, -39)
    if id ~= '' then
      ids[#ids + 1] = id
      entries[#entries + 1] = id .. string.format(':%016.0f', expired[at + 1])
    end
  end
  redis.call('LLEN', pending)
  local known = #ids > 0 and redis.call('HMGET', counts, unpack(ids)) or {}
  local counted = {}
  for i, id in ipairs(ids) do
    counted[#counted + 1] = id
    counted[#counted + 1] = with_one_more_lost(known[i])
  end
  begin_writing(leased)
  if #ids > 0 then
    redis.call('HSET', counts, unpack(counted))
    redis.call('RPUSH', pending, unpack(entries))
  end
  redis.call('ZREM', leased, unpack(members))
end

-- Payloads of unknown size: a few first, then as many as fit into a reply of reasonable size.
local function fetch(jobs, ids)
  local payloads, count, size, has_gap = {}, 0, 0, false
  local step = FIRST_STEP
  while count < #ids and step > 0 do
    for _, payload in ipairs(redis.call('HMGET', jobs, unpack(ids, count + 1, math.min(#ids, count + step)))) do
      count = count + 1
      payloads[count] = payload
      if payload then
        size = size + #payload
      else
        has_gap = true
      end
    end
    step = size > 0 and math.floor((MOST_BYTES - size) / size * count) or #ids
  end
  return payloads, has_gap
end

-- An entry whose job is gone is no job: it can only have been made by hand.
local function without_gaps(entries, ids, payloads)
  local known = { {}, {}, {} }
  for i, payload in ipairs(payloads) do
    if payload then
      table.insert(known[1], entries[i])
      table.insert(known[2], ids[i])
      table.insert(known[3], payload)
    end
  end
  return known[1], known[2], known[3]
end

local function reserve(pending, leased, jobs, counts, most)
  local entries, ids = redis.call('LRANGE', pending, '0', most - 1), {}
  if #entries == 0 then
    return nil
  end
  for i, entry in ipairs(entries) do
    ids[i] = string.sub(entry, 1, -18)
  end
  local payloads, has_gap = fetch(jobs, ids)
  local read = #payloads
  if has_gap or read < #entries then
    entries, ids, payloads = without_gaps(entries, ids, payloads)
  end
  local known = #ids > 0 and redis.call('HLEN', counts) > 0 and redis.call('HMGET', counts, unpack(ids))

  begin_writing(leased)
  if #ids > 0 then
    local members, ends = {}, string.format('%.0f', now + lease)
    for i, entry in ipairs(entries) do
      members[2 * i - 1] = ends
      members[2 * i] = entry .. token
    end
    redis.call('ZADD', leased, unpack(members))
  end
  redis.call('LTRIM', pending, read, -1)
  return entries, payloads, known
end

local function sweep(number)
  local at = 5 * number
  local pending, delayed, leased, jobs, counts = KEYS[at - 4], KEYS[at - 3], KEYS[at - 2], KEYS[at - 1], KEYS[at]
  if has_due(delayed) then
    promote(pending, delayed)
  end
  if has_due(leased) then
    take_back(pending, leased, counts)
  end
  local entries, payloads, known = reserve(pending, leased, jobs, counts, left)
  if entries and #entries > 0 then
    reply[#reply + 1] = { number, entries, payloads, known }
    left = left - #entries
  end
end

for number = 1, #KEYS / 5 do
  -- One broken queue must not strand what the queues before it have handed out.
  local is_swept, trouble = pcall(sweep, number)
  if not is_swept then
    if left == limit then
      local refusal = type(trouble) == 'table' and trouble.err or trouble
      return string.match(refusal, '^%u+ ') and redis.error_reply(refusal) or error(trouble, 0)
    end
    break
  end
  if left <= 0 then
    break
  end
end

return reply
