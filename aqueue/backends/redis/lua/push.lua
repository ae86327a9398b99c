-- include storing.lua
-- Store jobs on queues that share a slot, each id once and all of them or none (PUSH-3, PUSH-10, TOPIC-1).
-- KEYS: for each queue: pending delayed jobs
-- ARGV: for each queue: channel, how many jobs, then for each job: id, delay in microseconds, payload
-- Returns how many were stored.

-- Every key of every queue is read before one is written, so that a key of another type refuses the whole push.
local plans, at, stored = {}, 1, 0
for key = 1, #KEYS, 3 do
  local channel, count = ARGV[at], tonumber(ARGV[at + 1])
  local plan = planned(key, at + 2, count)
  plan.channel = channel
  plans[#plans + 1] = plan
  at = at + 2 + 3 * count
end

for _, plan in ipairs(plans) do
  stored = stored + carry_out(plan)
end
return stored
