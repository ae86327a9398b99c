-- List failed jobs of one queue, oldest first, from after a position; the cost is that of the page (FAIL-2).
-- KEYS: order names
-- ARGV: digest of the job's name or '', time and id to list after, limit, least age in microseconds or ''
-- Returns id, time, id, time …

local order, names = KEYS[1], KEYS[2]
local name, after, after_id, limit, least_age = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]

if name ~= '' then
  local page = {}
  local from = '(' .. name .. string.format('%016.0f', after) .. after_id
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', names, from, '(' .. name .. 'x', 'LIMIT', 0, limit)) do
    page[#page + 1] = string.sub(entry, 33)
    page[#page + 1] = string.sub(entry, 17, 32)
  end
  return page
end

local latest = '+inf'
if least_age ~= '' then
  local time = redis.call('TIME')
  latest = time[1] * 1000000 + time[2] - tonumber(least_age)
end
-- No two records of a queue share a moment, so one more than the limit makes up for the position itself.
local page = {}
local found = redis.call('ZRANGEBYSCORE', order, after, latest, 'WITHSCORES', 'LIMIT', 0, limit + 1)
for i = 1, #found, 2 do
  local id, at = found[i], tonumber(found[i + 1])
  if (at > after or id > after_id) and #page < 2 * limit then
    page[#page + 1] = id
    page[#page + 1] = string.format('%.0f', at)
  end
end
return page
