-- Charge all windows of an organization and named limits, in one step.
--
-- KEYS: the windows, the named limits. ARGV: the windows of the named limits, packed, and their fields;
-- then the windows of the plan with the request.
--
-- Returns what hit.lua returns of a request that does not expire, with what the named limits tell.

local windows, limits, plan, at = KEYS[1], KEYS[2], ARGV[#ARGV], 1
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

-- Sets barred, keep_all and told.
-- include: limits.lua

-- Sets reading, heads and charged.
-- include: barred_windows.lua

return reading .. heads .. told(charged)
