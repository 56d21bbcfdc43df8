-- Replace the change counter by the server's time in microseconds, times the scale, plus random bits.
--
-- KEYS: the counter. ARGV: the random bits, the scale, the life of the counter in milliseconds. Returns the
-- counter, which has more digits than a number of Lua: the last six are counted apart.

local time = redis.call('TIME')
local rest = time[2] * ARGV[2] + ARGV[1]
local millions = time[1] * ARGV[2] + math.floor(rest / 1000000)
local counter = string.format('%.0f%06.0f', millions, rest % 1000000)
redis.call('SET', KEYS[1], counter, 'PX', ARGV[3])
return counter
