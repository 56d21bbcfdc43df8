-- KEYS: the first key of the script that comes below. ARGV: how many more it has, these, its arguments.
local more = tonumber(ARGV[1])
local KEYS, ARGV = { KEYS[1], unpack(ARGV, 2, more + 1) }, { unpack(ARGV, more + 2) }
