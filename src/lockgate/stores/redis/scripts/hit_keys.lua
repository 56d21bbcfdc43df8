-- KEYS: the windows. ARGV: the request with its plan.
local windows, plan = KEYS[1], ARGV[1]
