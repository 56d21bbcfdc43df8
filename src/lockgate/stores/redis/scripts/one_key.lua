-- Restore KEYS and ARGV of the script below, of which only the first key was named to Redis.
-- KEYS: the first key. ARGV: how many more there are, these keys, the script's own arguments.
local more = tonumber(ARGV[1])
local KEYS, ARGV = { KEYS[1], unpack(ARGV, 2, more + 1) }, { unpack(ARGV, more + 2) }
