-- Read notes of one slot (NOTE-1).
-- KEYS: the notes
-- Returns the time in microseconds, then for each note what it says after its token and a colon, or false.

local time = redis.call('TIME')
return { time[1] * 1000000 + time[2], unpack(redis.call('MGET', unpack(KEYS))) }
