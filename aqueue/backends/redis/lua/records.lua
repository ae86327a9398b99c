-- Included by scripts that write failed jobs: one record for each job, that of its last failure (FAIL-1).
--
-- `failed` maps an id to a label of 32 characters and the record. The label is the digest of the job's name
-- and that of the delivery, 16 each. `order` scores ids by the time of the failure, and `names` sorts
-- (name, time, id) for listing one job's records; both are made from what `failed` holds.

local function name_entry(label, at, id)
  return string.sub(label, 1, 16) .. string.format('%016.0f', at) .. id
end

-- Return `now`, or the first moment after the latest record, so that records are listed as they failed.
local function next_moment(order, now)
  local latest = tonumber(redis.call('ZREVRANGE', order, 0, 0, 'WITHSCORES')[2])
  return latest and latest >= now and latest < now + 1000000 and latest + 1 or now
end

local function keep_record(failed, order, names, id, label, record, at)
  local known = redis.call('HGET', failed, id)
  local known_at = redis.call('ZSCORE', order, id)
  if known and known_at then
    if string.sub(known, 17, 32) == string.sub(label, 17, 32) then
      return false
    end
    redis.call('ZREM', names, name_entry(known, known_at, id))
  end
  redis.call('ZADD', names, 0, name_entry(label, at, id))
  redis.call('ZADD', order, at, id)
  redis.call('HSET', failed, id, label .. record)
  return true
end

local function forget_record(failed, order, names, id)
  local known, at = redis.call('HGET', failed, id), redis.call('ZSCORE', order, id)
  if known and at then
    redis.call('ZREM', names, name_entry(known, at, id))
  end
  redis.call('ZREM', order, id)
  redis.call('HDEL', failed, id)
end
