-- KEYS: the windows. ARGV: now, the plan's windows.
local windows, plan, life = KEYS[1], plan_of(ARGV[2]), nil
local now, cost, id, since = instant(ARGV[1]), 1, nil, 0

