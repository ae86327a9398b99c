-- include storing.lua
-- Write notes of one slot with their jobs, each if it still is what its writer read (NOTE-1, NOTE-2).
-- KEYS: for each note: note pending delayed jobs
-- ARGV: for each note: channel, expected token, new token, whether there is a value, value, lifetime in milliseconds
--       or -1 for ever, how many jobs, then for each job: id, delay in microseconds, payload
-- Returns 1 for each note that was written and 0 for each that was not.

-- A key of another type refuses all of them, before one is written.
for key = 1, #KEYS, 4 do
  redis.call('GET', KEYS[key])
  redis.call('LLEN', KEYS[key + 1])
  redis.call('ZCARD', KEYS[key + 2])
  redis.call('HLEN', KEYS[key + 3])
end

local function write(note, token, has_value, value, lifetime)
  if not has_value then
    redis.call('DEL', note)
  elseif lifetime == '-1' then
    redis.call('SET', note, token .. ':' .. value)
  else
    redis.call('SET', note, token .. ':' .. value, 'PX', lifetime)
  end
end

local answers, at = {}, 1
for key = 1, #KEYS, 4 do
  local channel, expected, token, has_value, value, lifetime, count = unpack(ARGV, at, at + 6)
  at, count = at + 7, tonumber(count)
  local is_written = string.match(redis.call('GET', KEYS[key]) or '', '^%x*') == expected
  if is_written then
    write(KEYS[key], token, has_value == '1', value, lifetime)
    if count > 0 then
      local plan = planned(key + 1, at, count)
      plan.channel = channel
      carry_out(plan)
    end
  end
  at = at + 3 * count
  answers[#answers + 1] = is_written and 1 or 0
end
return answers
