-- KEYS: the windows. ARGV: the plan's windows, milliseconds to keep their state; now, cost, request
-- id, an instant before it was sent first or 0.
local windows, plan, life = KEYS[1], plan_of(ARGV[1]), ARGV[2]
local now, cost, id, since = instant(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

