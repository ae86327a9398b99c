-- Give back, uncounted, what a pop handed out whose reply never came (POP-6).
-- KEYS: pending leased   ARGV: token of that pop
-- Hand-outs are found among the latest leases; one that lies deeper comes back when its lease is over.

local DEEPEST, STEP = 10000, 1000
local pending, leased = KEYS[1], KEYS[2]
local ending = ':' .. ARGV[1]

local members, entries = {}, {}
redis.call('LLEN', pending)
for from = 0, DEEPEST - 1, STEP do
  local page = redis.call('ZREVRANGE', leased, from, from + STEP - 1)
  for _, member in ipairs(page) do
    if string.sub(member, -#ending) == ending then
      members[#members + 1] = member
      entries[#entries + 1] = string.sub(member, 1, -#ending - 1)
    end
  end
  if #page < STEP then
    break
  end
end
if #members == 0 then
  return 0
end
-- One hand-out has one lease, so its members come in the order of their ids, not of the queue; the entries'
-- own times put them right. The latest is pushed first, to end up behind the others.
table.sort(entries, function(one, other)
  return string.match(one, ':(%d+)$') > string.match(other, ':(%d+)$')
end)
redis.call('PERSIST', leased)
redis.call('LPUSH', pending, unpack(entries))
redis.call('ZREM', leased, unpack(members))
return #members
