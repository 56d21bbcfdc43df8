-- Admit a request by an API key as admit.lua does, settle quota leases and grant one in the same step.
--
-- KEYS: the organization, its windows.
-- ARGV: the key hint, as in admit.lua; what is asked: the id of the lease to grant, the most units and
-- the span, then of each lease to settle its id, the bytes that follow, and instants with the units used
-- until each; then the windows of the plan with the request.
--
-- Returns what admit.lua returns, with the units granted behind a reading.

local windows, plan = KEYS[2], ARGV[6]
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

asked = ARGV[5]

-- Sets usage.
-- include: key_check.lua

-- Sets reading, heads, charged and granted.
-- include: sliding_window.lua

if not reading then
  return false
end
-- include: count_usage.lua
return reading .. heads .. (usage or NO_USAGE) .. write('<d', granted)
