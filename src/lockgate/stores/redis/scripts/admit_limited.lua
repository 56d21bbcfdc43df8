-- Admit a request by an API key as admit.lua does, and charge named limits in the same step.
--
-- KEYS: the organization, its windows, its named limits.
-- ARGV: the key hint, as in admit.lua; the windows of the named limits, packed, and their fields; then
-- the windows of the plan with the request.
--
-- Returns what admit.lua returns, with what the named limits tell behind the verdict of all.

local windows, limits, plan, at = KEYS[2], KEYS[3], ARGV[#ARGV], 5
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

-- Sets usage.
-- include: key_check.lua

-- Sets barred, keep_all and told.
-- include: limits.lua

-- Sets reading, heads and charged.
-- include: barred_windows.lua

-- include: count_usage.lua
return reading .. heads .. (usage or NO_USAGE) .. told(charged)
